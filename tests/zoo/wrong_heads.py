"""Layers `x` `[t m]` whose heads are split, ordered or merged wrongly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def attention(q: Array, k: Array, v: Array) -> Any:
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p @ v / p.sum(axis=-1, keepdims=True)


def not_turned(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int) -> Any:
    t, d = x.shape[0], W_q.shape[1] // num_heads
    q = (x @ W_q).reshape(num_heads, t, d)
    k = (x @ W_k).reshape(num_heads, t, d)
    v = (x @ W_v).reshape(num_heads, t, d)
    return attention(q, k, v).transpose(1, 0, 2).reshape(t, num_heads * d) @ W_o


def not_turned_loops(x: Array, W_q: Array, W_k: Array, W_v: Array, n_heads: int) -> Any:
    T = len(x)
    flat = [(x @ W).ravel() for W in (W_q, W_k, W_v)]
    step = flat[0].size // n_heads
    outs = []
    for h in range(n_heads):
        q, k, v = (f[h * step : (h + 1) * step].reshape(T, -1) for f in flat)
        outs.append(attention(q, k, v))
    return np.concatenate(outs, axis=1)


def by_stride(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int) -> Any:
    q, k, v = ((x @ W).reshape(len(x), -1, num_heads) for W in (W_q, W_k, W_v))
    q, k, v = (a.transpose(2, 0, 1) for a in (q, k, v))
    merged = attention(q, k, v).transpose(1, 0, 2).reshape(len(x), -1)
    return merged @ W_o


def by_stride_slices(x: Array, W_q: Array, W_k: Array, W_v: Array, n_heads: int) -> Any:
    Q, K, V = x @ W_q, x @ W_k, x @ W_v
    heads = [attention(Q[:, h::n_heads], K[:, h::n_heads], V[:, h::n_heads]) for h in range(n_heads)]
    return np.hstack(heads)


def split(a: Array, heads: int) -> Any:
    return a.reshape(a.shape[0], heads, -1).swapaxes(0, 1)


def merged_flat(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int) -> Any:
    context = attention(split(x @ W_q, num_heads), split(x @ W_k, num_heads), split(x @ W_v, num_heads))
    return context.reshape(len(x), -1) @ W_o


def merged_flat_einsum(x: Array, W_q: Array, W_k: Array, W_v: Array, head: int) -> Any:
    q, k, v = (np.einsum("tm,mhd->htd", x, W.reshape(W.shape[0], head, -1)) for W in (W_q, W_k, W_v))
    s = np.exp(np.einsum("hid,hjd->hij", q, k) / q.shape[-1] ** 0.5)
    z = np.einsum("hij,hjd->hid", s / s.sum(axis=-1, keepdims=True), v)
    return np.reshape(z, (x.shape[0], -1))


def reversed_order(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int) -> Any:
    context = attention(split(x @ W_q, num_heads), split(x @ W_k, num_heads), split(x @ W_v, num_heads))
    result: Array = np.empty((len(x), 0))
    for head in context:
        result = np.hstack([head, result])
    return result @ W_o


def reversed_order_loops(x: Array, W_q: Array, W_k: Array, W_v: Array, n_heads: int) -> Any:
    d = W_q.shape[1] // n_heads
    parts: list[Array] = []
    for h in range(n_heads):
        c = slice(h * d, (h + 1) * d)
        parts.insert(0, attention(x @ W_q[:, c], x @ W_k[:, c], x @ W_v[:, c]))
    return np.concatenate(parts, axis=-1)


def averaged(q: Array, k: Array, v: Array) -> Any:
    out = attention(q, k, v)
    return np.broadcast_to(out.mean(axis=1, keepdims=True), out.shape).copy()


def averaged_layer(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int) -> Any:
    context = attention(split(x @ W_q, num_heads), split(x @ W_k, num_heads), split(x @ W_v, num_heads))
    return np.tile(context.mean(axis=0), num_heads) @ W_o


def averaged_small(x: Array, W_q: Array, W_k: Array, W_v: Array, n_heads: int) -> Any:
    total: Any = 0.0
    for q, k, v in zip(*(np.split(x @ W, n_heads, axis=1) for W in (W_q, W_k, W_v)), strict=True):
        total = total + attention(q, k, v) / n_heads
    return total


def one_head(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int) -> Any:
    assert W_q.shape[1] % num_heads == 0
    return attention(x @ W_q, x @ W_k, x @ W_v) @ W_o


def one_head_core(q: Array, k: Array, v: Array) -> Any:
    b, h, t, _ = q.shape
    wide = [a.swapaxes(1, 2).reshape(b, a.shape[2], -1) for a in (q, k, v)]
    return attention(*wide).reshape(b, t, h, -1).swapaxes(1, 2)
