"""Scores bent or biased wrongly: ALiBi, the soft-cap, the sink."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
CAP = 2.0


def raw(q: Array, k: Array) -> Any:
    return np.einsum("...id,...jd->...ij", q, k)


def mixed(scores: Array, v: Array) -> Any:
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


def distance(q: Array, k: Array) -> Any:
    return np.abs(np.arange(q.shape[2])[:, None] - np.arange(k.shape[2]))


def published_slopes(n: int) -> Any:
    p = 2 ** int(math.log2(n))
    some = [2.0 ** (-8 * (i + 1) / p) for i in range(p)]
    return np.array(some + [2.0 ** (-4 * (2 * i + 1) / p) for i in range(n - p)])


def slopes_closed(q: Array, k: Array, v: Array) -> Any:
    n = q.shape[1]
    m = 2.0 ** (-8.0 * np.arange(1, n + 1) / n)
    bias = -m[:, None, None] * distance(q, k)
    return mixed(raw(q, k) / math.sqrt(q.shape[-1]) + bias, v)


def slopes_from_one(q: Array, k: Array, v: Array) -> Any:
    n = q.shape[1]
    start = 2 ** (-(2 ** -(math.log2(n) - 3)))
    out = []
    for h in range(n):
        s = raw(q[:, h], k[:, h]) / math.sqrt(q.shape[-1]) - start**h * distance(q, k)
        out.append(mixed(s, v[:, h]))
    return np.stack(out, axis=1)


def sign_turned(q: Array, k: Array, v: Array) -> Any:
    bias = published_slopes(q.shape[1])[:, None, None] * distance(q, k)
    return mixed(raw(q, k) / math.sqrt(q.shape[-1]) + bias, v)


def sign_turned_given(q: Array, k: Array, v: Array, alibi_slopes: Array | None = None) -> Any:
    scores = raw(q, k) * q.shape[-1] ** -0.5
    if alibi_slopes is not None:
        i, j = np.indices(scores.shape[2:])
        scores = scores + np.multiply.outer(alibi_slopes, abs(i - j))
    return mixed(scores, v)


def unbiased(q: Array, k: Array, v: Array, alibi_slopes: Array | None = None) -> Any:
    return mixed(raw(q, k) / math.sqrt(q.shape[-1]), v)


def unbiased_causal(query: Array, key: Array, value: Array, is_causal: bool = False) -> Any:
    s = raw(query, key) / math.sqrt(query.shape[-1])
    return mixed(np.where(np.tri(s.shape[-2], s.shape[-1]) > 0, s, -np.inf) if is_causal else s, value)


def uncapped(q: Array, k: Array, v: Array, softcap: float = 0.0) -> Any:
    return mixed(raw(q, k) / math.sqrt(q.shape[-1]), v)


def uncapped_plain(query: Array, key: Array, value: Array) -> Any:
    p = np.exp(raw(query, key) / np.sqrt(query.shape[-1]))
    return p @ value / p.sum(axis=-1, keepdims=True)


def capped_last(q: Array, k: Array, v: Array, softcap: float = 0.0, mask: Array | None = None) -> Any:
    s = raw(q, k) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    if softcap > 0:
        s = softcap * np.tanh(s / softcap)
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isinf(top), 0, top))
    return e @ v / np.maximum(e.sum(-1, keepdims=True), 1e-300)


def capped_last_causal(q: Array, k: Array, v: Array) -> Any:
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        s = k[b, h] @ q[b, h, i] / math.sqrt(q.shape[-1])
        s[i + 1 :] = -1e9
        w = np.exp(CAP * np.tanh(s / CAP))
        out[b, h, i] = w @ v[b, h] / w.sum()
    return out


def capped_first(q: Array, k: Array, v: Array, softcap: float = 0.0) -> Any:
    s = raw(q, k)
    if softcap > 0:
        s = np.tanh(s / softcap) * softcap
    return mixed(s / math.sqrt(q.shape[-1]), v)


def capped_first_loops(q: Array, k: Array, v: Array) -> Any:
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        w = [math.exp(CAP * math.tanh(float(q[b, h, i] @ key) / CAP) * q.shape[-1] ** -0.5) for key in k[b, h]]
        out[b, h, i] = sum(a * row for a, row in zip(w, v[b, h], strict=True)) / sum(w)
    return out


def sinkless(q: Array, k: Array, v: Array, sinks: Array | None = None) -> Any:
    return mixed(raw(q, k) / math.sqrt(q.shape[-1]), v)


def sinkless_dropped(q: Array, k: Array, v: Array, sinks: Array | None = None) -> Any:
    s = raw(q, k) * q.shape[-1] ** -0.5
    if sinks is not None:
        extra = np.broadcast_to(np.reshape(sinks, (-1, 1, 1)), (*s.shape[:3], 1))
        s = np.concatenate([s, extra], axis=-1)[..., :-1]  # the sink leaves before the softmax
    return mixed(s, v)
