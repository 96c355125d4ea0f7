"""What the settings of rules have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from attn_exp.arrays import Array


def grid_of(values: Any, name: str) -> Array:
    """Return nested lists as an array.

    Raises:
        ValueError: rows of different lengths, or what are no numbers.
    """
    try:
        array = np.asarray(values)
        array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be rows of equal length, such as [[1,0],[1,1]]")
    return array


def misfit(name: str, values: Array, heads: int, rows: int, keys: int) -> str | None:
    """Say which axis of an array does not broadcast to `[heads rows keys]`, or None."""
    for axis, size, what in ((-1, keys, "keys"), (-2, rows, "queries"), (-3, heads, "heads")):
        if values.ndim >= -axis and values.shape[axis] not in (1, size):
            return (
                f"{name} of shape {list(values.shape)} does not broadcast to [heads, queries, keys] = "
                f"[{heads}, {rows}, {keys}]: axis {axis} has {values.shape[axis]}, expected 1 or {size} for the {what}"
            )
    return None if values.ndim <= 4 else f"{name} has {values.ndim} axes; expected at most 4"
