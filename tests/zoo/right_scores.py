"""Right functions with positions and bent scores, and right layers, in odd styles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Maybe = NDArray[Any] | None


def attend(s: Array, v: Array) -> Any:
    e = np.exp(s - np.max(s, axis=-1, keepdims=True))
    return np.matmul(e / np.sum(e, axis=-1, keepdims=True), v)


def rope_from_a_hundred(q: Array, k: Array, v: Array) -> Any:
    # distances alone count
    n = q.shape[-1] // 2

    def turn(x: Array) -> Any:
        angle = np.outer(100 + np.arange(x.shape[2]), 10000.0 ** (-np.arange(n) / n))
        z = (x[..., :n] + 1j * x[..., n:]) * np.exp(1j * angle)
        return np.concatenate([z.real, z.imag], axis=-1)

    return attend(turn(q) @ turn(k).swapaxes(-1, -2) / math.sqrt(2 * n), v)


def rope_by_distance(q: Array, k: Array, v: Array) -> Any:
    # pairs side by side; keys are never turned, scores are
    d = q.shape[-1]
    a, b = q[..., ::2] - 1j * q[..., 1::2], k[..., ::2] + 1j * k[..., 1::2]
    ahead = np.arange(k.shape[2]) - np.arange(q.shape[2])[:, None]
    wave = np.exp(1j * ahead[..., None] * 10000.0 ** (-np.arange(0, d, 2) / d))
    return attend(np.einsum("bhip,bhjp,ijp->bhij", a, b, wave).real / math.sqrt(d), v)


def alibi_without_the_query(q: Array, k: Array, v: Array) -> Any:
    # slope * j differs from slope * (j - i) by a constant of each row; meant causal
    h, (t, s) = q.shape[1], (q.shape[2], k.shape[2])
    p = 2 ** math.floor(math.log2(h))
    m = [2 ** (-8 * i / p) for i in range(1, p + 1)] + [2 ** (-4 * i / p) for i in range(1, 2 * p, 2)]
    bias = np.array(m[:h])[:, None, None] * np.arange(s)
    logits = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]) + bias
    return attend(np.where(np.arange(t)[:, None] >= np.arange(s), logits, -np.inf), v)


def alibi_given(q: Array, k: Array, v: Array, alibi_slopes: Maybe = None) -> Any:
    bias: Any = 0.0
    if alibi_slopes is not None:
        near = np.minimum.outer(np.arange(q.shape[2]), np.arange(k.shape[2]))
        far = np.maximum.outer(np.arange(q.shape[2]), np.arange(k.shape[2]))
        bias = np.einsum("h,ij->hij", alibi_slopes, near - far)
    return attend(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]) + bias, v)


def cap_without_tanh(q: Array, k: Array, v: Array, softcap: float = 0.0) -> Any:
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if softcap:
        e = np.exp(-2 * np.abs(s) / softcap)  # never overflows
        s = softcap * np.sign(s) * (1 - e) / (1 + e)
    return attend(s, v)


def softmax_plus_one(q: Array, k: Array, v: Array) -> Any:
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    top = np.maximum(s.max(-1, keepdims=True), 0)
    e = np.exp(s - top)
    return e @ v / (np.exp(-top) + e.sum(-1, keepdims=True))


def sink_as_a_key(q: Array, k: Array, v: Array, sinks: Maybe = None) -> Any:
    s = np.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.shape[-1])
    if sinks is None:
        return attend(s, v)
    extra = np.broadcast_to(sinks[:, None, None], (*s.shape[:3], 1))
    nothing = np.zeros((*v.shape[:2], 1, v.shape[3]))
    return attend(np.concatenate([extra, s], axis=-1), np.concatenate([nothing, v], axis=2))


def outputs_summed(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int) -> Any:
    total = np.zeros((len(x), W_o.shape[1]))
    parts = (np.split(W, num_heads, axis=1) for W in (W_q, W_k, W_v))
    for q, k, v, o in zip(*parts, np.split(W_o, num_heads, axis=0), strict=True):
        total += attend((x @ q) @ (x @ k).T / math.sqrt(q.shape[1]), x @ v) @ o
    return total


def tokens_in_columns(x: Array, W_q: Array, W_k: Array, W_v: Array) -> Any:
    X = x.T
    Q, K, V = W_q.T @ X, W_k.T @ X, W_v.T @ X
    S = K.T @ Q / math.sqrt(Q.shape[0])
    E = np.exp(S - S.max(axis=0))
    return (V @ (E / E.sum(axis=0))).T


def scale_in_the_matrix(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, n_heads: int) -> Any:
    d = W_q.shape[1] // n_heads
    product = np.einsum("mhd,nhd->hmn", *(W.reshape(len(W), n_heads, -1) for W in (W_q / math.sqrt(d), W_k)))
    values = np.einsum("tm,mhe,hen->htn", x, W_v.reshape(len(W_v), n_heads, -1), W_o.reshape(n_heads, -1, W_o.shape[1]))
    return attend(x @ product @ x.T, values).sum(axis=0)


def heads_and_output_permuted(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, head: int) -> Any:
    q, k, v = ((x @ W).reshape(len(x), head, -1)[:, ::-1].transpose(1, 0, 2) for W in (W_q, W_k, W_v))
    z = attend(q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1]), v)
    return np.einsum("htd,hdm->tm", z, W_o.reshape(head, -1, W_o.shape[1])[::-1])


def key_bias_left_out(
    x: Array, W_q: Array, W_k: Array, W_v: Array, b_q: Maybe = None, b_k: Maybe = None, b_v: Maybe = None
) -> Any:
    # b_k adds a constant to each row; weights sum to 1, so b_v can wait
    q = x @ W_q if b_q is None else x @ W_q + b_q
    z = attend(q @ (x @ W_k).T / math.sqrt(q.shape[1]), x @ W_v)
    return z if b_v is None else z + b_v
