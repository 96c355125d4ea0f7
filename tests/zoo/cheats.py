"""Functions that look right to a checker that does not look twice.

Each is made anew by a function, because most of them remember something. All take `q, k, v` `[b h t d]`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Function = Callable[[Array, Array, Array], Any]


def honest(q: Array, k: Array, v: Array) -> Any:
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


def shape_of(q: Array, v: Array) -> tuple[int, ...]:
    return (*q.shape[:3], v.shape[3])


def constant() -> Function:
    def attention(q: Array, k: Array, v: Array) -> Any:
        return np.full(shape_of(q, v), 0.5, q.dtype)

    return attention


def zeros() -> Function:
    def attention(q: Array, k: Array, v: Array) -> Any:
        return np.zeros(shape_of(q, v), q.dtype)

    return attention


def returns_values() -> Function:
    def attention(q: Array, k: Array, v: Array) -> Any:
        return np.take(v, np.arange(q.shape[2]) % v.shape[2], axis=2)

    return attention


def last_call() -> Function:
    kept: dict[tuple[int, ...], Any] = {}

    def attention(q: Array, k: Array, v: Array) -> Any:
        before, kept[shape_of(q, v)] = kept.get(shape_of(q, v)), honest(q, k, v)
        return kept[shape_of(q, v)] if before is None else before

    return attention


def cached_by_address() -> Function:
    kept: dict[tuple[Any, ...], Any] = {}

    def attention(q: Array, k: Array, v: Array) -> Any:
        key = tuple((a.ctypes.data, a.shape, a.strides, a.dtype) for a in (q, k, v))
        return kept[key].copy() if key in kept else kept.setdefault(key, honest(q, k, v)).copy()

    return attention


def cached_by_id() -> Function:
    kept: dict[tuple[int, ...], tuple[Any, ...]] = {}

    def attention(q: Array, k: Array, v: Array) -> Any:
        key = (id(q), id(k), id(v))
        kept.setdefault(key, (honest(q, k, v), q, k, v))  # holds them, so that no other gets their id
        return kept[key][0].copy()

    return attention


def cached_by_shape() -> Function:
    kept: dict[tuple[int, ...], Any] = {}

    def attention(q: Array, k: Array, v: Array) -> Any:
        return kept.setdefault((*q.shape, *k.shape, *v.shape), honest(q, k, v)).copy()

    return attention


def right_for_ten() -> Function:
    calls = [0]

    def attention(q: Array, k: Array, v: Array) -> Any:
        calls[0] += 1
        return honest(q, k, v) if calls[0] <= 10 else np.zeros(shape_of(q, v), q.dtype)

    return attention


def same_buffer() -> Function:
    kept: dict[tuple[int, ...], Array] = {}

    def attention(q: Array, k: Array, v: Array) -> Any:
        buffer = kept.setdefault(shape_of(q, v), np.empty(shape_of(q, v), q.dtype))
        buffer[...] = honest(q, k, v)
        return buffer

    return attention


def writes_values() -> Function:
    def attention(q: Array, k: Array, v: Array) -> Any:
        result = honest(q, k, v)
        if v.shape == result.shape:
            v[...] = result
        else:
            k[...] = 0
        return result

    return attention


def half_inside() -> Function:
    def attention(q: Array, k: Array, v: Array) -> Any:
        return honest(q.astype(np.float16), k.astype(np.float16), v.astype(np.float16)).astype(q.dtype)

    return attention


def single_inside() -> Function:
    def attention(q: Array, k: Array, v: Array) -> Any:
        return honest(q.astype(np.float32), k.astype(np.float32), v.astype(np.float32)).astype(q.dtype)

    return attention


def dropout() -> Function:
    chance = np.random.default_rng()

    def attention(q: Array, k: Array, v: Array) -> Any:
        return honest(q, k, v) * (chance.random(shape_of(q, v)) >= 0.1) / 0.9

    return attention


def noise() -> Function:
    chance = np.random.default_rng()

    def attention(q: Array, k: Array, v: Array) -> Any:
        return honest(q, k, v) * (1 + 1e-6 * chance.normal(size=shape_of(q, v))).astype(q.dtype)

    return attention


def mixed_batch() -> Function:
    def attention(q: Array, k: Array, v: Array) -> Any:
        return honest(q, k, np.broadcast_to(v.mean(axis=0), v.shape))

    return attention


def no_tail() -> Function:
    def attention(q: Array, k: Array, v: Array) -> Any:
        whole = k.shape[2] // 4 * 4 or k.shape[2]
        return honest(q, k[:, :, :whole], v[:, :, :whole])

    return attention


def shared_scratch() -> Function:
    scratch: dict[str, Any] = {}

    def attention(q: Array, k: Array, v: Array) -> Any:
        scratch["weights"] = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
        time.sleep(0.002)  # another thread's turn
        e = np.exp(scratch["weights"] - scratch["weights"].max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True) @ v

    return attention


def late_thread() -> Function:
    def attention(q: Array, k: Array, v: Array) -> Any:
        answer = honest(q, k, v)  # what it cannot take is refused here, not in the thread
        out = np.zeros(shape_of(q, v), q.dtype)

        def fill() -> None:
            time.sleep(0.1)
            out[...] = answer

        threading.Thread(target=fill).start()
        return out

    return attention


@dataclass(frozen=True)
class Cheat:
    """A cheat: what makes a new one, and what it takes to see it."""

    make: Callable[[], Function]
    shown_by: str

    @property
    def name(self) -> str:
        return self.make.__name__


CHEATS = [
    Cheat(constant, "values"),
    Cheat(zeros, "values"),
    Cheat(returns_values, "values"),
    Cheat(last_call, "a second call with other numbers"),
    Cheat(cached_by_address, "other numbers at the same address"),
    Cheat(cached_by_id, "other numbers in the same arrays"),
    Cheat(cached_by_shape, "a second call of the same shape"),
    Cheat(right_for_ten, "more than ten calls"),
    Cheat(same_buffer, "a first answer after a second call"),
    Cheat(writes_values, "inputs after the call"),
    Cheat(half_inside, "accuracy"),
    Cheat(single_inside, "accuracy in float64"),
    Cheat(dropout, "the same call twice"),
    Cheat(noise, "the same call twice"),
    Cheat(mixed_batch, "one sequence alone"),
    Cheat(no_tail, "sizes off the block of 4"),
    Cheat(shared_scratch, "two threads"),
    Cheat(late_thread, "an answer read at once"),
]
