"""Large arrays among settings: recognised, and named by a hash of their numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attn_exp.arrays import Array

MOST_NUMBERS = 1000
"""Lists of more numbers are named by their hash."""

MARK = "array"


def name_of(array: Array) -> str:
    """Return what tells an array from all others: a hash of its type, its shape and its numbers."""
    return hashlib.sha256(f"{array.dtype.str} {array.shape}".encode() + array.tobytes()).hexdigest()[:32]


def as_numbers(value: Any) -> Array | None:
    """Return an array, or nested lists, of more than `MOST_NUMBERS` numbers as an array; None for anything else."""
    listed = isinstance(value, list | tuple)
    if (listed and count(value) <= MOST_NUMBERS) or not (listed or hasattr(value, "shape")):
        return None
    import numpy as np  # noqa: PLC0415 - few settings hold a large array, and `--cfg` needs NumPy for nothing else

    if not listed:
        return value if isinstance(value, np.ndarray) and value.size > MOST_NUMBERS else None
    try:
        array = np.array(value)
    except (ValueError, OverflowError):  # rows of unequal lengths, or a number that no array holds
        return None
    return array if array.dtype.kind in "iuf" else None


def count(value: Any) -> int:
    """Return how many numbers nested lists hold, as far as the first of each tells."""
    if not isinstance(value, list | tuple):
        return 1
    return len(value) * count(value[0]) if value else 0


def stored(name: str) -> str:
    """Return the name under which an array lies among those of a run."""
    return f"{MARK}:{name}"


def taken_out(value: Any, arrays: dict[str, Any]) -> Any:
    """Return plain values with the name of each large array in its place; the lists themselves go to `arrays`."""
    if isinstance(value, Mapping):
        return {key: taken_out(item, arrays) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    array = as_numbers(value)
    if array is None:
        return [taken_out(item, arrays) for item in value]
    name = stored(name_of(array))
    arrays[name] = value
    return name


def put_in(value: Any, arrays: Mapping[str, Any]) -> Any:
    """Return plain values with every array that a name stands for in its place."""
    if isinstance(value, Mapping):
        return {key: put_in(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [put_in(item, arrays) for item in value]
    return arrays.get(value, value) if isinstance(value, str) else value
