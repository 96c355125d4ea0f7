"""Rotary positions in the function itself: from 0, base 10000, half of a head turned with the other half."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def attend(q: Array, k: Array, v: Array) -> Any:
    s = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    s = np.exp(s - s.max(-1, keepdims=True))
    return (s / s.sum(-1, keepdims=True)) @ v


def angles(length: int, size: int, first: int = 0) -> Any:
    frequency = 10000.0 ** (-np.arange(0, size, 2) / size)
    return np.outer(np.arange(first, first + length), frequency)


def half(x: Array, first: int = 0) -> Any:
    angle = np.tile(angles(x.shape[2], x.shape[3], first), 2)
    a, b = np.split(x, 2, axis=-1)
    return x * np.cos(angle) + np.concatenate([-b, a], axis=-1) * np.sin(angle)


def interleaved(x: Array) -> Any:
    angle = angles(x.shape[2], x.shape[3])
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., 0::2] = even * np.cos(angle) - odd * np.sin(angle)
    turned[..., 1::2] = even * np.sin(angle) + odd * np.cos(angle)
    return turned


def pairs_side_by_side(q: Array, k: Array, v: Array) -> Any:
    return attend(interleaved(q), interleaved(k), v)


def pairs_complex(q: Array, k: Array, v: Array) -> Any:
    def turn(x: Array) -> Any:
        z = x[..., 0::2] + 1j * x[..., 1::2]
        z = z * np.exp(1j * angles(*x.shape[2:]))
        return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)

    return attend(turn(q), turn(k), v)


def pairs_of_halves(q: Array, k: Array, v: Array) -> Any:
    # asked for pairs side by side: position.rope.interleaved=true
    return attend(half(q), half(k), v)


def query_one_late(q: Array, k: Array, v: Array) -> Any:
    return attend(half(q, first=1), half(k), v)


def query_one_late_loops(q: Array, k: Array, v: Array) -> Any:
    pairs = q.shape[-1] // 2

    def turned(row: Array, place: int) -> Any:
        c = np.cos(place / 10000.0 ** (np.arange(pairs) / pairs))
        s = np.sin(place / 10000.0 ** (np.arange(pairs) / pairs))
        return np.r_[row[:pairs] * c - row[pairs:] * s, row[:pairs] * s + row[pairs:] * c]

    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        query = turned(q[b, h, i], i + 1)
        w = np.exp([query @ turned(k[b, h, j], j) / math.sqrt(2 * pairs) for j in range(k.shape[2])])
        out[b, h, i] = w @ v[b, h] / w.sum()
    return out


def values_too(q: Array, k: Array, v: Array) -> Any:
    return attend(half(q), half(k), half(v))


def values_too_fused(q: Array, k: Array, v: Array) -> Any:
    def rotate(x: Array) -> Any:
        n = x.shape[-1] // 2
        z = (x[..., :n] + 1j * x[..., n:]) * np.exp(1j * angles(*x.shape[2:]))
        return np.concatenate([z.real, z.imag], axis=-1)

    return attend(*map(rotate, (q, k, v)))


def unplaced(q: Array, k: Array, v: Array) -> Any:
    return attend(q, k, v)


def unplaced_cos_sin(q: Array, k: Array, v: Array, cos: Array | None = None, sin: Array | None = None) -> Any:
    if cos is not None and sin is not None:
        _ = q * cos + np.roll(q, q.shape[-1] // 2, axis=-1) * sin
    w = np.exp(np.einsum("bhtd,bhsd->bhts", q, k) / q.shape[-1] ** 0.5)
    return np.einsum("bhts,bhse->bhte", w / w.sum(-1, keepdims=True), v)


def unplaced_layer(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array) -> Any:
    s = np.exp((x @ W_q) @ (x @ W_k).T / math.sqrt(W_q.shape[1]))
    return s / s.sum(1, keepdims=True) @ (x @ W_v) @ W_o
