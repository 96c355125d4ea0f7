"""Padding and windows that end one key too late or too early."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
WINDOW = 3


def attend(q: Array, k: Array, v: Array, keep: Array) -> Any:
    s = np.where(keep, q @ k.swapaxes(2, 3) * q.shape[-1] ** -0.5, -np.inf)
    top = s.max(axis=-1, keepdims=True)
    e = np.exp(s - np.where(top == -np.inf, 0.0, top))
    total = e.sum(axis=-1, keepdims=True)
    return e @ v / np.where(total == 0, 1.0, total)


def padding_long(q: Array, k: Array, v: Array, lengths: Array | None = None) -> Any:
    places = np.arange(k.shape[2])
    keep = np.ones((1, 1, 1, len(places)), bool)
    if lengths is not None:
        keep = (places[None] <= np.asarray(lengths)[:, None])[:, None, None]
    return attend(q, k, v, keep)


def padding_long_loops(q: Array, k: Array, v: Array, seq_lens: Array | None = None) -> Any:
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b in range(len(q)):
        stop = k.shape[2] if seq_lens is None else int(seq_lens[b]) + 1
        s = np.exp(np.einsum("htd,hsd->hts", q[b], k[b, :, :stop]) / np.sqrt(q.shape[-1]))
        out[b] = s @ v[b, :, :stop] / s.sum(-1)[..., None]
    return out


def padding_short(q: Array, k: Array, v: Array, lengths: Array | None = None) -> Any:
    last = np.full(len(q), k.shape[2] - 1) if lengths is None else np.asarray(lengths) - 1
    if lengths is None:
        last = last + 1
    keep = np.arange(k.shape[2]) < last[:, None]
    return attend(q, k, v, keep[:, None, None, :])


def padding_short_loops(q: Array, k: Array, v: Array, seq_lens: Array | None = None) -> Any:
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b in range(len(q)):
        # the last one is the end token
        stop = k.shape[2] if seq_lens is None else int(seq_lens[b]) - 1
        out[b] = attend(q[b : b + 1], k[b : b + 1, :, :stop], v[b : b + 1, :, :stop], np.array(True))[0] if stop else 0
    return out


def near(t: int, s: int, left: int, right: int) -> Any:
    i, j = np.indices((t, s))
    return ((j >= i - left) | (left < 0)) & ((j <= i + right) | (right < 0))


def window_wide(q: Array, k: Array, v: Array, window_size: tuple[int, int] = (-1, -1)) -> Any:
    left, right = window_size
    keep = near(q.shape[2], k.shape[2], left + 1 if left >= 0 else -1, right)
    return attend(q, k, v, keep)


def window_wide_fixed(q: Array, k: Array, v: Array) -> Any:
    # a window of three tokens: the query and two before it
    i, j = np.ogrid[: q.shape[2], : k.shape[2]]
    return attend(q, k, v, (j <= i) & (i - j <= WINDOW))


def window_narrow(q: Array, k: Array, v: Array, window_size: tuple[int, int] = (-1, -1)) -> Any:
    left, right = window_size
    distance = np.arange(q.shape[2])[:, None] - np.arange(k.shape[2])
    keep = np.ones(distance.shape, bool)
    if left >= 0:
        keep &= distance < max(left, 1)
    if right >= 0:
        keep &= -distance <= right
    return attend(q, k, v, keep)


def window_narrow_loops(q: Array, k: Array, v: Array) -> Any:
    # three tokens, the query among them
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        seen = slice(max(i - WINDOW + 2, 0), min(i + 1, k.shape[2]))
        s = np.exp(k[b, h, seen] @ q[b, h, i] / np.sqrt(q.shape[-1]))
        if len(s):
            out[b, h, i] = s @ v[b, h, seen] / s.sum()
    return out
