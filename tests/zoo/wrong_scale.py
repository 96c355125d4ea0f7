"""Scores divided by something else than the square root of a head's size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def softmax(x: Array) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def unscaled(q: Array, k: Array, v: Array) -> Any:
    scores = q @ k.swapaxes(-1, -2)
    return softmax(scores) @ v


def unscaled_einsum(query: Array, key: Array, value: Array) -> Any:
    logits = np.einsum("bhqd,bhkd->bhqk", query, key)
    probs = np.exp(logits - logits.max(-1)[..., None])
    probs /= probs.sum(-1)[..., None]
    return np.einsum("bhqk,bhke->bhqe", probs, value)


def unscaled_layer(x: Array, W_q: Array, W_k: Array, W_v: Array) -> Any:
    Q, K, V = x @ W_q, x @ W_k, x @ W_v
    return softmax(Q @ K.T) @ V


def by_size(q: Array, k: Array, v: Array) -> Any:
    d_k = q.shape[-1]
    return softmax(np.matmul(q, np.transpose(k, (0, 1, 3, 2))) / d_k) @ v


def by_size_loops(q: Array, k: Array, v: Array) -> Any:
    out = np.zeros(q.shape[:-1] + v.shape[-1:])
    for b, h, i in np.ndindex(*q.shape[:3]):
        s = [float(np.dot(q[b, h, i], k[b, h, j])) / q.shape[-1] for j in range(k.shape[2])]
        top = max(s)
        e = [math.exp(x - top) for x in s]
        for j, w in enumerate(e):
            out[b, h, i] += w / sum(e) * v[b, h, j]
    return out


def by_model(q: Array, k: Array, v: Array) -> Any:
    _, heads, _, head_dim = q.shape
    d_model = heads * head_dim
    return softmax(np.einsum("...id,...jd->...ij", q, k) / np.sqrt(d_model)) @ v


def by_model_layer(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, n_heads: int) -> Any:
    T, D = x.shape
    split = (T, n_heads, -1)
    q, k, v = ((x @ W).reshape(split).swapaxes(0, 1) for W in (W_q, W_k, W_v))
    A = softmax(q @ k.swapaxes(1, 2) / D**0.5)
    return (A @ v).swapaxes(0, 1).reshape(T, -1) @ W_o


def by_heads(q: Array, k: Array, v: Array) -> Any:
    H = q.shape[1]
    att = (q @ k.transpose(0, 1, 3, 2)) * (1.0 / math.sqrt(H))
    return softmax(att) @ v


def by_heads_axis(query: Array, key: Array, value: Array) -> Any:
    # the size of a head stands at 1
    scores = np.einsum("nhqd,nhkd->nhqk", query, key) / np.sqrt(query.shape[1])
    return np.einsum("nhqk,nhkd->nhqd", softmax(scores), value)


def by_keys(q: Array, k: Array, v: Array) -> Any:
    dk = k.shape[-2]
    return softmax(q @ np.swapaxes(k, -2, -1) / math.sqrt(dk)) @ v


def by_keys_columns(Q: Array, K: Array, V: Array) -> Any:
    # meant for keys as columns, [b h d s]
    dims = K.shape[2]
    return softmax(np.einsum("bhid,bhjd->bhij", Q, K) * dims**-0.5) @ V


def multiplied(q: Array, k: Array, v: Array) -> Any:
    scale = np.sqrt(q.shape[-1])
    return softmax(q @ k.swapaxes(-1, -2) * scale) @ v


def multiplied_loops(q: Array, k: Array, v: Array) -> Any:
    out = np.empty(q.shape[:-1] + v.shape[-1:], q.dtype)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            s = (q[b, h] * q.shape[-1] ** 0.5) @ k[b, h].T
            out[b, h] = softmax(s) @ v[b, h]
    return out


def twice(q: Array, k: Array, v: Array, sm_scale: float | None = None) -> Any:
    if sm_scale is None:
        sm_scale = q.shape[-1] ** -0.5
    q = q * sm_scale
    scores = np.einsum("bhmd,bhnd->bhmn", q, k)
    return softmax(scores * sm_scale) @ v


def twice_loops(q: Array, k: Array, v: Array, scale: float | None = None) -> Any:
    c = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    out = np.zeros((*q.shape[:3], v.shape[3]))
    for b, h in np.ndindex(*q.shape[:2]):
        qs = c * q[b, h]
        for i in range(q.shape[2]):
            row = np.array([c * (qs[i] @ key) for key in k[b, h]])
            out[b, h, i] = softmax(row) @ v[b, h]
    return out


def late(q: Array, k: Array, v: Array) -> Any:
    weights = softmax(q @ k.swapaxes(-1, -2))
    return (weights / math.sqrt(k.shape[-1])) @ v


def late_einsum(q: Array, k: Array, v: Array, scale: float | None = None) -> Any:
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return scale * np.einsum("bhij,bhje->bhie", softmax(np.einsum("bhid,bhjd->bhij", q, k)), v)
