"""What the public functions are given, checked and laid out as `[b h t d]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attn_exp.arrays import Array

AXES = ("batch", "heads", "tokens", "size")


@dataclass(frozen=True)
class Arranged:
    """Queries `[b h t d]`, keys `[b g s d]` and values `[b g s e]`, past ones included, and how they came."""

    query: Array
    key: Array
    value: Array
    past: int
    given_axes: int
    side_by_side: bool

    @property
    def logits_shape(self) -> tuple[int, int, int, int]:
        """The shape of the logits, `[b h t s]`."""
        return *self.query.shape[:3], self.key.shape[2]

    def output(self, context: Array) -> Array:
        """Lay a context `[b h t e]` out as the inputs came."""
        if self.side_by_side:
            batches, heads, length, size = context.shape
            context = context.swapaxes(1, 2).reshape(batches, length, heads * size)
        return context if context.ndim == self.given_axes else context.reshape(context.shape[-2:])

    def laid(self, array: Any) -> Any:
        """Give an array `[b h ...]`, if there is one, the axes of a single head where the inputs were those of one."""
        one_head = self.given_axes == 2 and not self.side_by_side
        return array.reshape(array.shape[-2:]) if one_head and array is not None else array


def arrange(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    past_key: ArrayLike | None = None,
    past_value: ArrayLike | None = None,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
) -> Arranged:
    """Check the inputs of attention against each other and lay them out.

    Raises:
        ValueError: an axis that does not fit, named with what was expected and what was there.
    """
    q, k, v = numbers(query, "query"), numbers(key, "key"), numbers(value, "value")
    axes = q.ndim
    if axes not in (2, 3, 4) or not k.ndim == v.ndim == axes:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in (("query", q), ("key", k), ("value", v)))
        raise ValueError(
            f"query, key and value must all be [batch, heads, tokens, size], all [batch, tokens, heads*size] or all "
            f"[tokens, size]; got {shapes}"
        )
    side_by_side = check_head_counts(axes, q_num_heads, kv_num_heads)
    q, k, v = (
        apart(array, name, count)
        for array, name, count in ((q, "query", q_num_heads), (k, "key", kv_num_heads), (v, "value", kv_num_heads))
    )
    length = 0
    if (past_key is None) != (past_value is None):
        missing = "past_key" if past_key is None else "past_value"
        raise ValueError(f"past_key and past_value go together: {missing} is missing")
    if past_key is not None and past_value is not None:
        past = numbers(past_key, "past_key"), numbers(past_value, "past_value")
        k, v = (joined(old, new, name) for old, new, name in zip(past, (k, v), ("key", "value"), strict=True))
        length = past[0].shape[-2]
    check_fit(q, k, v)
    kind = np.result_type(q, k, v)
    q, k, v = (array.astype(kind, copy=False) for array in (q, k, v))
    return Arranged(q, k, v, length, axes, side_by_side)


def numbers(given: ArrayLike, name: str) -> Array:
    """Return an array of floats; whole numbers become float64."""
    array = array_of(given, name)
    if array.dtype.kind in "biu":
        return array.astype(np.float64)
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise ValueError(f"{name} holds {array.dtype}; expected real numbers")
    return array


def array_of(given: Any, name: str) -> Array:
    """Return what was given as an array.

    Raises:
        ValueError: lists of other lengths than their neighbours.
    """
    try:
        return np.asarray(given)
    except ValueError as error:
        raise ValueError(f"{name} has rows of different lengths; expected an array") from error


def check_head_counts(axes: int, q_num_heads: int | None, kv_num_heads: int | None) -> bool:
    """Say whether heads lie side by side in the last axis."""
    given = q_num_heads is not None, kv_num_heads is not None
    if axes == 4 and any(given):
        raise ValueError("q_num_heads and kv_num_heads are for 3-D inputs; 4-D inputs have an axis for their heads")
    if any(given) and not all(given):
        raise ValueError("q_num_heads and kv_num_heads go together; only one is given")
    if axes == 3 and not all(given):
        raise ValueError("3-D inputs hold heads side by side: give q_num_heads and kv_num_heads, 1 for a single head")
    return axes != 4 and all(given)


def apart(array: Array, name: str, count: int | None) -> Array:
    """Return `[b h t d]` from `[b t h*d]`, `[t h*d]` or `[t d]`; head i owns the i-th run of the last axis."""
    if array.ndim == 4:
        return array
    array = array if array.ndim == 3 else array[None]
    heads = 1 if count is None else count
    which = "q_num_heads" if name == "query" else "kv_num_heads"
    if heads < 1 or array.shape[-1] % heads:
        raise ValueError(f"{which}={heads} does not divide the last axis of {name}, {array.shape[-1]}")
    batches, length, width = array.shape
    return array.reshape(batches, length, heads, width // heads).swapaxes(1, 2)


def joined(past: Array, new: Array, name: str) -> Array:
    """Put past keys or values before the new ones."""
    past = past if past.ndim == 4 else past.reshape((1,) * (4 - past.ndim) + past.shape)
    for axis in (0, 1, 3):
        if past.shape[axis] != new.shape[axis]:
            raise ValueError(misfit(f"past_{name}", past, axis, new.shape[axis], name))
    return np.concatenate([past, new], axis=2)


def check_fit(q: Array, k: Array, v: Array) -> None:
    """Refuse queries, keys and values whose axes do not agree."""
    for name, array, axis, other, as_in in (
        ("key", k, 0, q, "query"),
        ("value", v, 0, q, "query"),
        ("key", k, 3, q, "query"),
        ("value", v, 1, k, "key"),
        ("value", v, 2, k, "key"),
    ):
        if array.shape[axis] != other.shape[axis]:
            raise ValueError(misfit(name, array, axis, other.shape[axis], as_in))
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(f"{k.shape[1]} key/value heads do not divide {q.shape[1]} query heads")


def misfit(name: str, array: Array, axis: int, expected: int, as_in: str) -> str:
    """Say which axis of which array does not fit."""
    return (
        f"{name} of shape {list(array.shape)} [batch, heads, tokens, size] has {array.shape[axis]} in axis {axis} "
        f"({AXES[axis]}); expected {expected}, as in {as_in}"
    )
