"""Layers `x` `[t m]` whose matrices and biases are left out, turned or mixed up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Maybe = NDArray[Any] | None


def heads_of(a: Array, n: int) -> Any:
    return a.reshape(len(a), n, -1).transpose(1, 0, 2)


def mixed(q: Array, k: Array, v: Array, n: int) -> Any:
    q, k, v = heads_of(q, n), heads_of(k, n), heads_of(v, n)
    w = np.exp(q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1]))
    out = w / w.sum(-1, keepdims=True) @ v
    return out.transpose(1, 0, 2).reshape(out.shape[1], -1)


def no_output(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int) -> Any:
    return mixed(x @ W_q, x @ W_k, x @ W_v, num_heads)


def no_output_loops(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, head: int) -> Any:
    out = np.zeros((len(x), W_v.shape[1]))
    d, e = W_q.shape[1] // head, W_v.shape[1] // head
    for h in range(head):
        q, k = x @ W_q[:, h * d : h * d + d], x @ W_k[:, h * d : h * d + d]
        v = x @ W_v[:, h * e : h * e + e]
        for i in range(len(x)):
            s = np.exp(k @ q[i] / math.sqrt(d))
            out[i, h * e : h * e + e] = s @ v / sum(s)
    return out


def output_turned(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int) -> Any:
    return mixed(x @ W_q, x @ W_k, x @ W_v, num_heads) @ W_o.T


def output_turned_einsum(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, n_heads: int) -> Any:
    context = mixed(x @ W_q, x @ W_k, x @ W_v, n_heads)
    return np.einsum("tc,mc->tm", context, W_o)


def turned(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int) -> Any:
    return mixed(x @ W_q.T, x @ W_k.T, x @ W_v.T, num_heads) @ W_o


def turned_columns(x: Array, W_q: Array, W_k: Array, W_v: Array) -> Any:
    X = x.T
    Q, K, V = W_q @ X, W_k @ X, W_v @ X
    s = np.exp(K.T @ Q / np.sqrt(len(K)))
    return (V @ (s / s.sum(axis=0))).T


def no_biases(
    x: Array, W_q: Array, W_k: Array, W_v: Array, b_q: Maybe = None, b_k: Maybe = None, b_v: Maybe = None
) -> Any:
    q, k, v = (x @ W for W in (W_q, W_k, W_v))
    return mixed(q, k, v, 1)


def no_biases_heads(  # noqa: PLR0913, PLR0917 - all that a layer is given
    x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array,
    b_q: Maybe = None, b_k: Maybe = None, b_v: Maybe = None, b_o: Maybe = None, *, num_heads: int,
) -> Any:  # fmt: skip
    return np.einsum("tm,mn->tn", mixed(x @ W_q, x @ W_k, x @ W_v, num_heads), W_o)


def plus(a: Array, bias: Maybe) -> Any:
    return a if bias is None else a + bias


def no_value_bias(  # noqa: PLR0913, PLR0917 - all that a layer is given
    x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array,
    b_q: Maybe = None, b_k: Maybe = None, b_v: Maybe = None, b_o: Maybe = None, *, num_heads: int,
) -> Any:  # fmt: skip
    context = mixed(plus(x @ W_q, b_q), plus(x @ W_k, b_k), x @ W_v, num_heads)
    return plus(context @ W_o, b_o)


def no_value_bias_loops(
    x: Array, W_q: Array, W_k: Array, W_v: Array, b_q: Maybe = None, b_k: Maybe = None, b_v: Maybe = None
) -> Any:
    q, k = plus(x @ W_q, b_q), plus(x @ W_k, b_k)
    rows = []
    for i in range(len(x)):
        w = np.exp([float(q[i] @ key) / math.sqrt(q.shape[1]) for key in k])
        rows.append((w / w.sum()) @ x @ W_v)
    return np.stack(rows)


def order_fused(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int) -> Any:
    W_qkv = np.concatenate([W_q, W_k, W_v], axis=1)
    q, v, k = np.split(x @ W_qkv, 3, axis=1)
    return mixed(q, k, v, num_heads) @ W_o


def order_stacked(x: Array, W_q: Array, W_k: Array, W_v: Array, n_heads: int) -> Any:
    fused = np.einsum("tm,cmn->ctn", x, np.stack([W_q, W_k, W_v]))
    v, q, k = fused
    return mixed(q, k, v, n_heads)
