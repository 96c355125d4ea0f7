"""Detection of large arrays among settings, which are named by a hash of their contents."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attn_exp.arrays import Array

MOST_NUMBERS = 1000
"""Lists of more numbers are replaced by a name made from their hash."""

MARK = "array"


def name_of(array: Array) -> str:
    """Return a unique name for an array: a hash of its dtype, shape and numbers."""
    return hashlib.sha256(f"{array.dtype.str} {array.shape}".encode() + array.tobytes()).hexdigest()[:32]


def as_numbers(value: Any) -> Array | None:
    """Convert an array or nested lists of more than `MOST_NUMBERS` numbers to an array; None for anything else."""
    listed = isinstance(value, list | tuple)
    if (listed and count(value) <= MOST_NUMBERS) or not (listed or hasattr(value, "shape")):
        return None
    import numpy as np  # noqa: PLC0415 - few settings hold a large array; `--cfg` needs no NumPy otherwise

    if not listed:
        return value if isinstance(value, np.ndarray) and value.size > MOST_NUMBERS else None
    try:
        array = np.array(value)
    except (ValueError, OverflowError):  # rows of unequal lengths, or a number too large for an array
        return None
    return array if array.dtype.kind in "iuf" else None


def count(value: Any) -> int:
    """Estimate how many numbers nested lists hold, from the first item at each level."""
    if not isinstance(value, list | tuple):
        return 1
    return len(value) * count(value[0]) if value else 0


def stored(name: str) -> str:
    return f"{MARK}:{name}"


def taken_out(value: Any, arrays: dict[str, Any]) -> Any:
    """Replace each large list in plain values by its name; the lists move to `arrays`."""
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
    if isinstance(value, Mapping):
        return {key: put_in(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [put_in(item, arrays) for item in value]
    return arrays.get(value, value) if isinstance(value, str) else value
