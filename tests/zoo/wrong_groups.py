"""Key/value heads shared by groups of query heads, given to the wrong ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def attend(q: Array, k: Array, v: Array) -> Any:
    w = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(q.shape[-1])
    w = np.exp(w - w.max(axis=-1, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", w, v) / w.sum(axis=-1)[..., None]


def tiled(q: Array, k: Array, v: Array) -> Any:
    n_rep = q.shape[1] // k.shape[1]
    k = np.tile(k, (1, n_rep, 1, 1))
    v = np.tile(v, (1, n_rep, 1, 1))
    return attend(q, k, v)


def tiled_loops(q: Array, k: Array, v: Array, enable_gqa: bool = False) -> Any:
    heads = range(q.shape[1])
    kv_heads = k.shape[1] if enable_gqa else q.shape[1]
    out = [attend(q[:, h, None], k[:, h % kv_heads, None], v[:, h % kv_heads, None]) for h in heads]
    return np.concatenate(out, axis=1)


def tiled_grouped(q: Array, k: Array, v: Array) -> Any:
    b, h, t, d = q.shape
    g = k.shape[1]
    grouped = q.reshape(b, h // g, g, t, d)
    w = np.exp(np.einsum("brgtd,bgsd->brgts", grouped, k) / d**0.5)
    w /= w.sum(-1, keepdims=True)
    return np.einsum("brgts,bgse->brgte", w, v).reshape(b, h, t, -1)


def repeated_tokens(q: Array, k: Array, v: Array) -> Any:
    b, h, _, d = q.shape
    n_rep, s = h // k.shape[1], k.shape[2]
    k = np.broadcast_to(k[:, :, :, None], (b, h // n_rep, s, n_rep, d)).reshape(b, h, s, d)
    v = np.broadcast_to(v[:, :, :, None], (*v.shape[:3], n_rep, v.shape[3])).reshape(b, h, s, -1)
    return attend(q, k, v)


def repeated_tokens_side_by_side(q: Array, k: Array, v: Array) -> Any:
    b, h = q.shape[:2]
    n_rep, s = h // k.shape[1], k.shape[2]
    k, v = (np.concatenate([side.transpose(0, 2, 1, 3)] * n_rep, axis=1) for side in (k, v))
    return attend(q, *(side.reshape(b, s, h, -1).transpose(0, 2, 1, 3) for side in (k, v)))


def first_only(q: Array, k: Array, v: Array) -> Any:
    return attend(q, np.repeat(k[:, :1], q.shape[1], axis=1), np.repeat(v[:, :1], q.shape[1], axis=1))


def first_only_loops(query: Array, key: Array, value: Array, enable_gqa: bool = False) -> Any:
    shared = key.shape[1] != query.shape[1]
    out = np.zeros((*query.shape[:3], value.shape[-1]))
    for b, h, i in np.ndindex(*query.shape[:3]):
        g = 0 if shared else h
        w = np.exp(key[b, g] @ query[b, h, i] / np.sqrt(query.shape[-1]))
        out[b, h, i] = w @ value[b, g] / w.sum()
    return out
