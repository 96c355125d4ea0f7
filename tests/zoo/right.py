"""Right functions in odd styles: what a checker must let pass."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Maybe = NDArray[Any] | None


def plain_softmax(s: Array) -> Any:
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def online(q: Array, k: Array, v: Array) -> Any:
    top = np.full((*q.shape[:3], 1), -np.inf)
    total, out = np.zeros_like(top), np.zeros((*q.shape[:3], v.shape[-1]))
    for j in range(k.shape[2]):
        s = (q * k[:, :, j, None]).sum(axis=-1, keepdims=True) / math.sqrt(q.shape[-1])
        new = np.maximum(top, s)
        total = total * np.exp(top - new) + np.exp(s - new)
        out = out * np.exp(top - new) + np.exp(s - new) * v[:, :, j, None]
        top = new
    return out / total


def blocks(q: Array, k: Array, v: Array, is_causal: bool = False, block: int = 4) -> Any:
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    total, top = np.zeros((*q.shape[:3], 1)), np.full((*q.shape[:3], 1), -np.inf)
    for first in range(0, k.shape[2], block):
        stop = min(first + block, k.shape[2])
        s = q @ k[:, :, first:stop].swapaxes(2, 3) / math.sqrt(q.shape[-1])
        if is_causal:
            s[:, :, np.arange(q.shape[2])[:, None] < np.arange(first, stop)] = -np.inf
        new = np.maximum(top, s.max(-1, keepdims=True))
        p, old = np.exp(s - new), np.exp(top - new)
        total, out, top = total * old + p.sum(-1, keepdims=True), out * old + p @ v[:, :, first:stop], new
    return out / total


def scale_on_query(q: Array, k: Array, v: Array, scale: float | None = None) -> Any:
    q = q * (q.shape[-1] ** -0.5 if scale is None else scale)
    return plain_softmax(np.einsum("bhid,bhjd->bhij", q, k)) @ v


def scale_on_both(q: Array, k: Array, v: Array) -> Any:
    root = q.shape[-1] ** -0.25
    return plain_softmax((q * root) @ (k * root).swapaxes(-1, -2)) @ v


def log_space(q: Array, k: Array, v: Array) -> Any:
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    log_weights = s - np.logaddexp.reduce(s, axis=-1, keepdims=True)
    return np.exp(log_weights) @ v


def powers_of_two(q: Array, k: Array, v: Array, sm_scale: float | None = None) -> Any:
    scale = (q.shape[-1] ** -0.5 if sm_scale is None else sm_scale) * math.log2(math.e)
    s = q @ k.swapaxes(-1, -2) * scale
    p = np.exp2(s - s.max(-1, keepdims=True))
    return p @ v / p.sum(-1, keepdims=True)


def wide_sums(q: Array, k: Array, v: Array) -> Any:
    kind = np.promote_types(q.dtype, np.float32)
    s = np.einsum("bhid,bhjd->bhij", q.astype(kind), k.astype(kind)) / kind.type(math.sqrt(q.shape[-1]))
    return (plain_softmax(s) @ v.astype(kind)).astype(q.dtype)


def scalars(q: Array, k: Array, v: Array) -> Any:
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        logits = [math.fsum(q[b, h, i] * key) / math.sqrt(q.shape[-1]) for key in k[b, h]]
        weights = [math.exp(logit - max(logits)) for logit in logits]
        for c in range(v.shape[-1]):
            out[b, h, i, c] = math.fsum(np.array(weights) * v[b, h, :, c]) / math.fsum(weights)
    return out


def no_product(q: Array, k: Array, v: Array) -> Any:
    s = np.sum(q[..., :, None, :] * k[..., None, :, :], axis=-1) / np.sqrt(q.shape[-1])
    return np.sum(plain_softmax(s)[..., None] * v[..., None, :, :], axis=-2)


def keys_as_rows(q: Array, k: Array, v: Array) -> Any:
    s = k @ q.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    s = np.exp(s - s.max(axis=-2, keepdims=True))
    return (v.swapaxes(-1, -2) @ (s / s.sum(axis=-2, keepdims=True))).swapaxes(-1, -2)


def keys_reversed(query: Array, key: Array, value: Array) -> Any:
    s = query @ key[:, :, ::-1].swapaxes(-1, -2) / math.sqrt(query.shape[-1])
    return plain_softmax(s) @ value[:, :, ::-1]


def two_halves(q: Array, k: Array, v: Array) -> Any:
    def part(keys: slice) -> tuple[Any, Any]:
        s = q @ k[:, :, keys].swapaxes(-1, -2) / math.sqrt(q.shape[-1])
        lse = np.logaddexp.reduce(s, axis=-1, keepdims=True)
        return np.exp(s - lse) @ v[:, :, keys], lse

    half = max(k.shape[2] // 2, 1)
    (one, a), (other, b) = part(slice(0, half)), part(slice(half, None)) if k.shape[2] > 1 else (0.0, -np.inf)
    both = np.logaddexp(a, b)
    return one * np.exp(a - both) + other * np.exp(b - both)


def decoding(q: Array, k: Array, v: Array) -> Any:
    # one token after the other, as with a cache; meant causal
    out = []
    for i in range(q.shape[2]):
        past_k, past_v = k[:, :, : i + 1], v[:, :, : i + 1]
        s = np.einsum("bhd,bhjd->bhj", q[:, :, i], past_k) / math.sqrt(q.shape[-1])
        out.append(np.einsum("bhj,bhje->bhe", plain_softmax(s), past_v))
    return np.stack(out, axis=2)


def grouped_reshape(q: Array, k: Array, v: Array) -> Any:
    b, h, t, d = q.shape
    g = k.shape[1]
    rows = q.reshape(b, g, h // g * t, d)  # the queries of a group, one head below the other
    return (plain_softmax(rows @ k.swapaxes(-1, -2) / math.sqrt(d)) @ v).reshape(b, h, t, -1)


def grouped_einsum(q: Array, k: Array, v: Array, enable_gqa: bool = False) -> Any:
    groups = k.shape[1] if enable_gqa else q.shape[1]
    Q = q.reshape(q.shape[0], groups, -1, *q.shape[2:])
    A = plain_softmax(np.einsum("bgrid,bgjd->bgrij", Q, k) * q.shape[-1] ** -0.5)
    return np.einsum("bgrij,bgje->bgrie", A, v).reshape(*q.shape[:3], -1)


def minus_infinity_added(q: Array, k: Array, v: Array, mask: Maybe = None) -> Any:
    bias = 0.0 if mask is None else np.where(mask, 0.0, -np.inf)
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]) + bias
    top = s.max(axis=-1, keepdims=True)
    e = np.exp(s - np.where(np.isneginf(top), 0.0, top))
    total = e.sum(axis=-1, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total > 0) @ v


def least_number(q: Array, k: Array, v: Array, attn_mask: Maybe = None) -> Any:
    s = np.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.shape[-1])
    s = s if attn_mask is None else np.where(attn_mask, s, np.finfo(s.dtype).min)
    return plain_softmax(s) @ v


def picked_keys(q: Array, k: Array, v: Array, mask: Maybe = None) -> Any:
    keep = np.broadcast_to(True if mask is None else mask, (*q.shape[:3], k.shape[2]))
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        seen = np.flatnonzero(keep[b, h, i])
        if len(seen):
            s = k[b, h, seen] @ q[b, h, i] / math.sqrt(q.shape[-1])
            out[b, h, i] = plain_softmax(s) @ v[b, h, seen]
    return out


def last_beside_last(q: Array, k: Array, v: Array, causal: bool = False) -> Any:
    t, s = q.shape[2], k.shape[2]
    keep = np.tri(t, s, s - t) > 0 if causal else np.ones((t, s), bool)
    return minus_infinity_added(q, k, v, keep)


def cut_to_length(q: Array, k: Array, v: Array, lengths: Maybe = None) -> Any:
    ends = np.full(len(q), k.shape[2]) if lengths is None else lengths
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, n in enumerate(ends):
        if n > 0:
            out[b] = plain_softmax(q[b] @ k[b, :, :n].swapaxes(-1, -2) / math.sqrt(q.shape[-1])) @ v[b, :, :n]
    return out


def banded(q: Array, k: Array, v: Array, window_size: tuple[int, int] = (-1, -1)) -> Any:
    left, right = (k.shape[2] + q.shape[2] if side < 0 else side for side in window_size)
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for i in range(q.shape[2]):
        seen = slice(max(i - left, 0), max(min(i + right + 1, k.shape[2]), 0))
        if range(*seen.indices(k.shape[2])):
            s = np.einsum("bhd,bhjd->bhj", q[:, :, i], k[:, :, seen]) * q.shape[-1] ** -0.5
            out[:, :, i] = np.einsum("bhj,bhje->bhe", plain_softmax(s), v[:, :, seen])
    return out
