"""Weights that are not the softmax over the keys."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def soft(x: Array, axis: int = -1) -> Any:
    z = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return z / np.sum(z, axis=axis, keepdims=True)


def scaled(q: Array, k: Array) -> Any:
    return np.matmul(q, k.swapaxes(-2, -1)) / math.sqrt(q.shape[-1])


def columns(q: Array, k: Array, v: Array) -> Any:
    return soft(scaled(q, k), axis=-2) @ v


def columns_loops(q: Array, k: Array, v: Array) -> Any:
    out = np.zeros(q.shape[:3] + v.shape[3:])
    for b, h, j in np.ndindex(k.shape[0], k.shape[1], k.shape[2]):
        col = np.exp([np.dot(row, k[b, h, j]) / math.sqrt(len(row)) for row in q[b, h]])
        col = col / col.sum()
        out[b, h] += np.outer(col, v[b, h, j])
    return out


def columns_layer(x: Array, W_q: Array, W_k: Array, W_v: Array) -> Any:
    Q, K, V = x @ W_q, x @ W_k, x @ W_v
    S = Q @ K.T / np.sqrt(K.shape[1])
    return soft(S, axis=0) @ V


def heads(q: Array, k: Array, v: Array) -> Any:
    s = scaled(q, k)
    w = np.exp(s - s.max(axis=1, keepdims=True))
    return (w / w.sum(axis=1, keepdims=True)) @ v


def heads_layer(x: Array, W_q: Array, W_k: Array, W_v: Array, num_heads: int) -> Any:
    n = x.shape[0]
    q, k, v = ((x @ W).reshape(n, num_heads, -1) for W in (W_q, W_k, W_v))
    s = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(q.shape[-1])
    return np.einsum("hij,jhd->ihd", soft(s, axis=0), v).reshape(n, -1)


def everything(q: Array, k: Array, v: Array) -> Any:
    s = scaled(q, k)
    flat = s.reshape(*s.shape[:2], -1)
    return soft(flat).reshape(s.shape) @ v


def everything_sum(query: Array, key: Array, value: Array) -> Any:
    e = np.exp(np.einsum("bhid,bhjd->bhij", query, key) / query.shape[-1] ** 0.5)
    total = e.sum(axis=(2, 3), keepdims=True)
    return np.einsum("bhij,bhjd->bhid", e / total, value)


def linear(q: Array, k: Array, v: Array) -> Any:
    return scaled(q, k) @ v


def linear_loops(q: Array, k: Array, v: Array) -> Any:
    c = 1 / math.sqrt(q.shape[-1])
    out = np.zeros(q.shape[:3] + v.shape[3:])
    for b, h, i, j in np.ndindex(*q.shape[:3], k.shape[2]):
        out[b, h, i] += c * np.dot(q[b, h, i], k[b, h, j]) * v[b, h, j]
    return out


def by_sum(q: Array, k: Array, v: Array) -> Any:
    s = scaled(q, k)
    return s / s.sum(axis=-1, keepdims=True) @ v


def by_sum_einsum(q: Array, k: Array, v: Array) -> Any:
    att = np.einsum("bhtd,bhsd->bhts", q, k) * q.shape[-1] ** -0.5
    att = att / np.einsum("bhts->bht", att)[..., None]
    return np.einsum("bhts,bhse->bhte", att, v)


def twice(q: Array, k: Array, v: Array) -> Any:
    return soft(soft(scaled(q, k))) @ v


def twice_rows(q: Array, k: Array, v: Array) -> Any:
    probs = soft(np.einsum("bhtd,bhsd->bhts", q, k) / np.sqrt(q.shape[-1]))
    out = np.empty((*q.shape[:3], v.shape[-1]))
    for place in np.ndindex(*q.shape[:3]):
        row = np.exp(probs[place])
        out[place] = row @ v[place[:2]] / row.sum()
    return out


def base_2(q: Array, k: Array, v: Array) -> Any:
    s = scaled(q, k)
    p = np.exp2(s - s.max(-1, keepdims=True))
    return p @ v / p.sum(-1, keepdims=True)


def logarithms(q: Array, k: Array, v: Array) -> Any:
    s = scaled(q, k)
    s = s - s.max(-1, keepdims=True)
    return (s - np.log(np.exp(s).sum(-1, keepdims=True))) @ v


def logarithm_of_shares(q: Array, k: Array, v: Array) -> Any:
    p = np.exp(np.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(q.shape[-1]))
    return np.einsum("bhts,bhsd->bhtd", np.log(p / p.sum(-1, keepdims=True)), v)


def base_2_online(q: Array, k: Array, v: Array) -> Any:
    m = np.full(q.shape[:3], -np.inf)
    total, acc = np.zeros(q.shape[:3]), np.zeros((*q.shape[:3], v.shape[-1]))
    for j in range(k.shape[2]):
        s = np.einsum("bhtd,bhd->bht", q, k[:, :, j]) / math.sqrt(q.shape[-1])
        new = np.maximum(m, s)
        old, p = np.exp2(m - new), np.exp2(s - new)
        total = total * old + p
        acc = acc * old[..., None] + p[..., None] * v[:, :, j, None]
        m = new
    return acc / total[..., None]


def raw_exp(q: Array, k: Array, v: Array) -> Any:
    e = np.exp(scaled(q, k))
    return (e / e.sum(-1, keepdims=True)) @ v


def raw_exp_loops(q: Array, k: Array, v: Array) -> Any:
    out = np.zeros((*q.shape[:3], v.shape[-1]), q.dtype)
    for b, h, i in np.ndindex(*q.shape[:3]):
        e = np.exp(k[b, h] @ q[b, h, i] / math.sqrt(q.shape[-1]))
        out[b, h, i] = (e[:, None] * v[b, h]).sum(0) / e.sum()
    return out
