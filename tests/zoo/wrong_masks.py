"""Boolean masks, True = may attend, that land at the wrong place or with the wrong value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Maybe = NDArray[Any] | None


def safe_softmax(x: Array) -> Any:
    top = x.max(axis=-1, keepdims=True)
    e = np.exp(x - np.where(np.isfinite(top), top, 0))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def logits(q: Array, k: Array) -> Any:
    return q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])


def inverted(q: Array, k: Array, v: Array, mask: Maybe = None) -> Any:
    scores = logits(q, k)
    if mask is not None:
        scores = np.where(mask, -np.inf, scores)
    return safe_softmax(scores) @ v


def inverted_loops(q: Array, k: Array, v: Array, attn_mask: Maybe = None) -> Any:
    shape = (*q.shape[:3], k.shape[2])
    drop = np.zeros(shape, bool) if attn_mask is None else np.broadcast_to(attn_mask, shape)
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        kept = [j for j in range(k.shape[2]) if not drop[b, h, i, j]]
        w = [math.exp(q[b, h, i] @ k[b, h, j] / math.sqrt(q.shape[3])) for j in kept]
        for weight, j in zip(w, kept, strict=True):
            out[b, h, i] += weight / sum(w) * v[b, h, j]
    return out


def ignored(q: Array, k: Array, v: Array, mask: Maybe = None) -> Any:
    weights = safe_softmax(logits(q, k))
    return weights @ v


def ignored_copy(query: Array, key: Array, value: Array, attn_mask: Maybe = None) -> Any:
    scores = np.einsum("bhqd,bhkd->bhqk", query, key) / np.sqrt(query.shape[-1])
    if attn_mask is not None:
        np.where(attn_mask, scores, -1e9)
    return np.einsum("bhqk,bhkd->bhqd", safe_softmax(scores), value)


def after(q: Array, k: Array, v: Array, mask: Maybe = None) -> Any:
    w = safe_softmax(logits(q, k))
    if mask is not None:
        w = np.where(mask, w, 0.0)
    return w @ v


def after_einsum(query: Array, key: Array, value: Array, attn_mask: Maybe = None) -> Any:
    probs = safe_softmax(np.einsum("bhqd,bhkd->bhqk", query, key) * query.shape[-1] ** -0.5)
    keep = 1.0 if attn_mask is None else attn_mask.astype(query.dtype)
    return np.einsum("bhqk,bhkd->bhqd", probs * keep, value)


def multiplied(q: Array, k: Array, v: Array, mask: Maybe = None) -> Any:
    scores = logits(q, k)
    if mask is not None:
        scores = scores * mask
    return safe_softmax(scores) @ v


def multiplied_rows(q: Array, k: Array, v: Array, attn_mask: Maybe = None) -> Any:
    shape = (*q.shape[:3], k.shape[2])
    keep = np.ones(shape) if attn_mask is None else np.broadcast_to(attn_mask, shape).astype(float)
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        s = (k[b, h] @ q[b, h, i]) / math.sqrt(q.shape[-1]) * keep[b, h, i]
        out[b, h, i] = np.exp(s) @ v[b, h] / np.exp(s).sum()
    return out


def minus_ten(q: Array, k: Array, v: Array, mask: Maybe = None) -> Any:
    scores = logits(q, k)
    if mask is not None:
        scores = np.where(mask, scores, -10.0)
    return safe_softmax(scores) @ v


def bias_of_ten(query: Array, key: Array, value: Array, attn_mask: Maybe = None) -> Any:
    scores = np.einsum("bhqd,bhkd->bhqk", query, key) / query.shape[-1] ** 0.5
    if attn_mask is not None:
        scores = scores + (1.0 - attn_mask) * -10.0
    return np.einsum("bhqk,bhkd->bhqd", safe_softmax(scores), value)


def turned(q: Array, k: Array, v: Array, mask: Maybe = None) -> Any:
    scores = logits(q, k)
    if mask is not None:
        scores = np.where(np.swapaxes(mask, -1, -2), scores, -np.inf)
    return safe_softmax(scores) @ v


def turned_columns(q: Array, k: Array, v: Array, attn_mask: Maybe = None) -> Any:
    s = np.einsum("bhid,bhjd->bhji", q, k) / np.sqrt(q.shape[-1])  # keys as rows
    if attn_mask is not None:
        s = np.where(attn_mask, s, -np.inf)
    s = safe_softmax(np.moveaxis(s, -2, -1))
    return np.einsum("bhij,bhje->bhie", s, v)
