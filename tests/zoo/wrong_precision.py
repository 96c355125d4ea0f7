"""Half precision inside, for inputs that have more."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def half_products(q: Array, k: Array, v: Array) -> Any:
    s = np.matmul(q.astype(np.float16), k.swapaxes(-1, -2).astype(np.float16)).astype(q.dtype)
    s = np.exp(s / math.sqrt(q.shape[-1]))
    return s / s.sum(-1, keepdims=True) @ v


def half_sums_loops(q: Array, k: Array, v: Array) -> Any:
    s = np.exp(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5)
    w = (s / s.sum(-1, keepdims=True)).astype(np.float16)
    acc = np.zeros((*q.shape[:3], v.shape[-1]), np.float16)
    for j in range(k.shape[2]):
        acc += w[..., j, None] * v[:, :, j, None].astype(np.float16)
    return acc.astype(v.dtype)


def half_exponentials(q: Array, k: Array, v: Array) -> Any:
    s = (q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])).astype(np.float16)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    return p.astype(v.dtype) @ v


def half_exponentials_rows(query: Array, key: Array, value: Array) -> Any:
    out = np.empty((*query.shape[:3], value.shape[-1]), value.dtype)
    for b, h, i in np.ndindex(*query.shape[:3]):
        row = np.float16(key[b, h] @ query[b, h, i] / np.sqrt(query.shape[-1]))
        e = np.exp(row - row.max(), dtype=np.float16)
        out[b, h, i] = (e / e.sum(dtype=np.float16)).astype(value.dtype) @ value[b, h]
    return out
