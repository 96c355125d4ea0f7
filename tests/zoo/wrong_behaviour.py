"""Right formulas in functions that do not behave: chance, neighbours in the batch, tails, buffers, NaN."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BUFFERS: dict[tuple[int, ...], Array] = {}
CHANCE = np.random.default_rng()


def weights_of(q: Array, k: Array) -> Any:
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def dropout(q: Array, k: Array, v: Array) -> Any:
    w = weights_of(q, k)
    keep = CHANCE.random(w.shape) >= 0.1
    return (w * keep / 0.9) @ v


def dropout_layer(x: Array, W_q: Array, W_k: Array, W_v: Array) -> Any:
    w = weights_of(x @ W_q, x @ W_k)
    w = np.where(CHANCE.random(w.shape) < 0.2, 0, w / 0.8)
    return w @ x @ W_v


def shuffled_sum(q: Array, k: Array, v: Array) -> Any:
    # blocks are added as they arrive
    w, out = weights_of(q, k), np.zeros((*q.shape[:3], v.shape[-1]), v.dtype)
    for j in CHANCE.permutation(k.shape[2]):
        out += w[..., j, None] * v[:, :, j, None]
    return out


def noisy(q: Array, k: Array, v: Array) -> Any:
    jitter = CHANCE.normal(scale=1e-4, size=q.shape).astype(q.dtype)
    return weights_of(q + jitter, k) @ v


def first_entry_keys(q: Array, k: Array, v: Array) -> Any:
    return np.einsum("bhij,hje->bhie", weights_of(q, k[:1]), v[0])


def flattened_wrong(q: Array, k: Array, v: Array) -> Any:
    b, h = q.shape[:2]
    flat_q = q.reshape(b * h, *q.shape[2:])
    flat_k, flat_v = (a.swapaxes(0, 1).reshape(b * h, *a.shape[2:]) for a in (k, v))
    return (weights_of(flat_q, flat_k) @ flat_v).reshape(b, h, q.shape[2], -1)


def key_tail(q: Array, k: Array, v: Array) -> Any:
    block = 4
    total, out = np.zeros(q.shape[:3]), np.zeros((*q.shape[:3], v.shape[-1]))
    for step in range(max(k.shape[2] // block, 1)):
        part = slice(step * block, (step + 1) * block)
        e = np.exp(q @ k[:, :, part].swapaxes(-1, -2) / math.sqrt(q.shape[-1]))
        total += e.sum(-1)
        out += e @ v[:, :, part]
    return out / total[..., None]


def query_tail(q: Array, k: Array, v: Array) -> Any:
    block = min(4, q.shape[2])
    out = np.zeros((*q.shape[:3], v.shape[-1]), q.dtype)
    for start in range(0, q.shape[2] - block + 1, block):
        rows = slice(start, start + block)
        out[:, :, rows] = weights_of(q[:, :, rows], k) @ v
    return out


def scales_in_place(q: Array, k: Array, v: Array) -> Any:
    q /= np.sqrt(q.shape[-1])
    s = np.exp(q @ k.swapaxes(-1, -2))
    return s / s.sum(-1, keepdims=True) @ v


def scales_keys_in_place(query: Array, key: Array, value: Array, scale: float | None = None) -> Any:
    np.multiply(key, key.shape[-1] ** -0.5 if scale is None else scale, out=key)
    w = np.exp(np.einsum("bhid,bhjd->bhij", query, key))
    return np.einsum("bhij,bhje->bhie", w / w.sum(-1, keepdims=True), value)


def one_buffer(q: Array, k: Array, v: Array) -> Any:
    shape = (*q.shape[:3], v.shape[-1])
    out = BUFFERS.setdefault(shape, np.empty(shape))
    return np.matmul(weights_of(q, k), v, out=out)


def one_buffer_default(q: Array, k: Array, v: Array, out: list[Array] = []) -> Any:  # noqa: B006 - the mistake
    result = weights_of(q, k) @ v
    if not out or out[0].shape != result.shape:
        out[:] = [result]
    out[0][...] = result
    return out[0]


def nan_through(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    s = s if mask is None else np.where(mask, s, -np.inf)
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isfinite(top), top, 0))
    return e / np.maximum(e.sum(-1, keepdims=True), 1e-300) @ v


def nan_through_bias(query: Array, key: Array, value: Array, attn_mask: Array | None = None) -> Any:
    s = np.einsum("bhid,bhjd->bhij", query, key) / np.sqrt(query.shape[-1])
    s = s + np.where(True if attn_mask is None else attn_mask, 0, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True, initial=-1e30))
    return np.einsum("bhij,bhje->bhie", e, value) / np.maximum(e.sum(-1), 1e-300)[..., None]


def empty_rows(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def empty_rows_loops(q: Array, k: Array, v: Array, attn_mask: Array | None = None) -> Any:
    keep = np.broadcast_to(True if attn_mask is None else attn_mask, (*q.shape[:3], k.shape[2]))
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        s = k[b, h] @ q[b, h, i] / math.sqrt(q.shape[-1])
        e = np.exp(s - s.max()) * keep[b, h, i]
        with np.errstate(invalid="ignore"):
            out[b, h, i] = e / e.sum() @ v[b, h]
    return out
