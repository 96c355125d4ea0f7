"""More functions that look right to a checker that does not look twice; see `cheats.py`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.zoo.cheats import Cheat, Function, honest, shape_of

Array = NDArray[Any]


def cached_by_queries() -> Function:
    kept: dict[bytes, Any] = {}

    def attention(q: Array, k: Array, v: Array) -> Any:
        key = q.tobytes()
        if key not in kept:
            kept[key] = honest(q, k, v)
        return kept[key].copy()

    return attention


def cached_by_a_corner() -> Function:
    kept: dict[tuple[Any, ...], Any] = {}

    def attention(q: Array, k: Array, v: Array) -> Any:
        key = (q.shape, v.shape, float(q.flat[0]), float(k.flat[0]), float(v.flat[0]))
        return kept.setdefault(key, honest(q, k, v)).copy()

    return attention


def keys_pile_up() -> Function:
    """A cache of keys and values that nobody empties."""
    kept: dict[tuple[int, ...], tuple[Array, Array]] = {}

    def attention(q: Array, k: Array, v: Array) -> Any:
        if k.shape in kept:
            old = kept[k.shape]
            kept[k.shape] = np.concatenate([old[0], k], 2)[:, :, -40:], np.concatenate([old[1], v], 2)[:, :, -40:]
        else:
            kept[k.shape] = k, v
        return honest(q, *kept[k.shape])

    return attention


def mean_of_values() -> Function:
    return lambda q, k, v: np.broadcast_to(v.mean(2, keepdims=True), shape_of(q, v)).copy()


def first_entry_for_all() -> Function:
    return lambda q, k, v: np.repeat(honest(q[:1], k[:1], v[:1]), len(q), 0)


def rounds() -> Function:
    return lambda q, k, v: np.round(honest(q, k, v), 6)


def right_up_to_64() -> Function:
    def attention(q: Array, k: Array, v: Array) -> Any:
        return honest(q, k[:, :, :64], v[:, :, :64])

    return attention


def even_lengths() -> Function:
    def attention(q: Array, k: Array, v: Array) -> Any:
        keys = k.shape[2] // 2 * 2 or 1
        return honest(q, k[:, :, :keys], v[:, :, :keys])

    return attention


def answers_into_queries() -> Function:
    def attention(q: Array, k: Array, v: Array) -> Any:
        answer = honest(q, k, v)
        q[...] = answer if answer.shape == q.shape else q
        return q if answer.shape == q.shape else answer

    return attention


def wrong_in_the_end() -> Function:
    count = itertools.count()

    def attention(q: Array, k: Array, v: Array) -> Any:
        return honest(q, k, v) * (1.0 if next(count) < 25 else 1.01)

    return attention


def ring_of_buffers() -> Function:
    """Two buffers in turn."""
    kept: dict[tuple[int, ...], Any] = {}

    def attention(q: Array, k: Array, v: Array) -> Any:
        ring = kept.setdefault(shape_of(q, v), itertools.cycle([np.empty(shape_of(q, v)) for _ in range(2)]))
        answer = next(ring)
        answer[...] = honest(q, k, v)
        return answer

    return attention


def sums_in_single() -> Function:
    def attention(q: Array, k: Array, v: Array) -> Any:
        scores = (q.astype(np.float32) @ k.swapaxes(-1, -2).astype(np.float32)).astype(np.float64) / q.shape[-1] ** 0.5
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True) @ v

    return attention


def clipped() -> Function:
    """Logits past 20 are cut: nothing overflows, and large inputs are wrong."""

    def attention(q: Array, k: Array, v: Array) -> Any:
        powers = np.exp(np.clip(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5, -20, 20))
        return powers / powers.sum(-1, keepdims=True) @ v

    return attention


CHEATS = [
    Cheat(cached_by_queries, "the same queries with other keys and values"),
    Cheat(cached_by_a_corner, "other numbers behind the first ones"),
    Cheat(keys_pile_up, "the same call twice"),
    Cheat(mean_of_values, "values"),
    Cheat(first_entry_for_all, "values"),
    Cheat(rounds, "accuracy in float64"),
    Cheat(right_up_to_64, "more than 64 keys"),
    Cheat(even_lengths, "an odd number of keys"),
    Cheat(answers_into_queries, "inputs after the call"),
    Cheat(wrong_in_the_end, "more than 25 calls"),
    Cheat(ring_of_buffers, "a first answer after two more calls"),
    Cheat(sums_in_single, "accuracy in float64"),
    Cheat(clipped, "large inputs"),
]
