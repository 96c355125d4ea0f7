"""The right arrays, multiplied the wrong way."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def normalized(scores: Array) -> Any:
    scores = np.exp(scores - np.amax(scores, axis=-1, keepdims=True))
    return scores / np.sum(scores, axis=-1, keepdims=True)


def weights_turned(q: Array, k: Array, v: Array) -> Any:
    A = normalized(q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1]))
    return A.transpose(0, 1, 3, 2) @ v


def weights_turned_einsum(q: Array, k: Array, v: Array) -> Any:
    att = normalized(np.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5)
    return np.einsum("bhij,bhie->bhje", att, v)


def weights_turned_columns(x: Array, W_q: Array, W_k: Array, W_v: Array) -> Any:
    X = x.T  # tokens as columns
    Q, K, V = W_q.T @ X, W_k.T @ X, W_v.T @ X
    A = normalized(Q.T @ K / math.sqrt(len(Q)))
    return (V @ A).T


def swapped(q: Array, k: Array, v: Array) -> Any:
    return normalized(k @ q.swapaxes(-1, -2) / math.sqrt(q.shape[-1])) @ v


def swapped_einsum(query: Array, key: Array, value: Array) -> Any:
    logits = np.einsum("bhqd,bhkd->bhkq", query, key) / key.shape[-1] ** 0.5
    return np.einsum("bhqk,bhkd->bhqd", normalized(logits), value)


def swapped_layer(x: Array, W_q: Array, W_k: Array, W_v: Array, n_heads: int) -> Any:
    t = len(x)
    query = (x @ W_k).reshape(t, n_heads, -1).transpose(1, 0, 2)
    key = (x @ W_q).reshape(t, n_heads, -1).transpose(1, 0, 2)
    value = (x @ W_v).reshape(t, n_heads, -1).transpose(1, 0, 2)
    mixed = normalized(query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])) @ value
    return mixed.transpose(1, 0, 2).reshape(t, -1)


def keys_again(q: Array, k: Array, v: Array) -> Any:
    weights = normalized(q @ np.moveaxis(k, -1, -2) / math.sqrt(q.shape[-1]))
    return weights @ k


def keys_again_layer(x: Array, W_q: Array, W_k: Array, W_v: Array) -> Any:
    q, k = x @ W_q, x @ W_k
    v = x @ W_k
    return normalized(q @ k.T / np.sqrt(k.shape[-1])) @ v
