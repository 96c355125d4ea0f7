"""The causal mask: lost, turned over, or shifted by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def masked_softmax(scores: Array, keep: Array) -> Any:
    scores = np.where(keep, scores, -np.inf)
    top = np.max(scores, axis=-1, keepdims=True, initial=-1e30)
    e = np.exp(scores - top)
    return e / np.maximum(e.sum(axis=-1, keepdims=True), 1e-300)


def scores_of(q: Array, k: Array) -> Any:
    return np.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.shape[-1])


def lost(q: Array, k: Array, v: Array, is_causal: bool = False) -> Any:
    s = scores_of(q, k)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True)) @ v


def lost_layer(x: Array, W_q: Array, W_k: Array, W_v: Array) -> Any:
    q, k, v = x @ W_q, x @ W_k, x @ W_v
    s = np.exp(q @ k.T / math.sqrt(k.shape[1]))
    return s @ v / s.sum(axis=1, keepdims=True)


def flipped(q: Array, k: Array, v: Array) -> Any:
    keep = np.triu(np.ones((q.shape[-2], k.shape[-2]), dtype=bool))
    return masked_softmax(scores_of(q, k), keep) @ v


def flipped_loops(q: Array, k: Array, v: Array, is_causal: bool = False) -> Any:
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        first = i if is_causal else 0
        if first >= k.shape[2]:
            continue
        s = np.exp(k[b, h, first:] @ q[b, h, i] / math.sqrt(q.shape[-1]))
        out[b, h, i] = s @ v[b, h, first:] / s.sum()
    return out


def strict(q: Array, k: Array, v: Array, is_causal: bool = False) -> Any:
    keep = np.ones((q.shape[2], k.shape[2]), bool)
    if is_causal:
        keep = np.tril(keep, k=-1)
    return masked_softmax(scores_of(q, k), keep) @ v


def strict_loops(q: Array, k: Array, v: Array) -> Any:
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        past = slice(0, i)
        if i == 0:
            continue
        s = np.exp(k[b, h, past] @ q[b, h, i] / math.sqrt(q.shape[-1]))
        out[b, h, i] = s @ v[b, h, past] / s.sum()
    return out


def next_token(q: Array, k: Array, v: Array, causal: bool = False) -> Any:
    keep = np.tril(np.ones((q.shape[2], k.shape[2]), bool), k=1) if causal else np.array(True)
    return masked_softmax(scores_of(q, k), keep) @ v


def next_token_triu(q: Array, k: Array, v: Array) -> Any:
    future = np.triu(np.ones((q.shape[2], k.shape[2]), bool), k=2)
    s = scores_of(q, k)
    s[:, :, future] = -1e9
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def first_beside_first(q: Array, k: Array, v: Array, is_causal: bool = False) -> Any:
    t, s = q.shape[2], k.shape[2]
    keep = np.arange(s)[None] <= np.arange(t)[:, None] if is_causal else np.ones((t, s), bool)
    return masked_softmax(scores_of(q, k), keep) @ v


def first_beside_first_loops(q: Array, k: Array, v: Array) -> Any:
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for i in range(q.shape[2]):
        keys = k[:, :, : i + 1]
        s = np.exp(np.einsum("bhd,bhjd->bhj", q[:, :, i], keys) / math.sqrt(q.shape[-1]))
        out[:, :, i] = np.einsum("bhj,bhje->bhe", s, v[:, :, : i + 1]) / s.sum(-1, keepdims=True)
    return out


def last_beside_last(q: Array, k: Array, v: Array, is_causal: bool = False) -> Any:
    t, s = q.shape[2], k.shape[2]
    keep = np.tri(t, s, s - t, dtype=bool) if is_causal else np.ones((t, s), bool)
    return masked_softmax(scores_of(q, k), keep) @ v


def last_beside_last_loops(query: Array, key: Array, value: Array, causal: bool = False) -> Any:
    out = np.zeros((*query.shape[:3], value.shape[-1]))
    before = key.shape[2] - query.shape[2]
    for b, h, i in np.ndindex(*query.shape[:3]):
        stop = max(before + i + 1, 0) if causal else key.shape[2]
        s = np.exp(key[b, h, :stop] @ query[b, h, i] * query.shape[-1] ** -0.5)
        if stop:
            out[b, h, i] = s @ value[b, h, :stop] / s.sum()
    return out
