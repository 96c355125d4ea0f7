"""Finds the input that made an output NaN."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attn_exp.forms._operator.arrange import Arranged
from attn_exp.rules.grid import Grid
from attn_exp.rules.rules import Rules

Array = NDArray[Any]

PLACE = ("batch", "head", "token", "entry")


def blame(context: Array, given: Arranged, rules: Rules) -> None:
    """Name the NaN or infinity in the input that made the output NaN; pass where every output is a number.

    Where finite inputs made NaN, something overflowed on the way: that is a warning, for the operator defines it so.

    Raises:
        ValueError: the input holds it where a query looks.
    """
    wide = context.astype(np.float32, copy=False) if context.dtype.itemsize < 4 else context
    if not np.isnan(wide.min(initial=0)):  # the smallest of numbers and a NaN is NaN
        return
    bad = np.isnan(wide)
    batch, head, row, _ = (int(index) for index in np.argwhere(bad)[0])
    accuse("query", given.query, (batch, head), [row])
    seen = np.flatnonzero(allowed(batch, head, row, given, rules)).tolist()
    group = head * given.key.shape[1] // given.query.shape[1]
    accuse("key", given.key, (batch, group), seen, f"which query {row} may see; ")
    accuse("value", given.value, (batch, group), seen, f"which query {row} may see; ")
    warnings.warn(f"logits overflow {context.dtype}: the output holds NaN", RuntimeWarning, stacklevel=4)


def accuse(name: str, array: Array, place: tuple[int, int], tokens: list[int], why: str = "") -> None:
    """Raise if one of these tokens holds a number that is not finite."""
    for token in tokens:
        bad = np.flatnonzero(~np.isfinite(array[(*place, token)]))
        if len(bad):
            where = ", ".join(f"{axis} {index}" for axis, index in zip(PLACE, (*place, token, bad[0]), strict=True))
            held = array[(*place, token, bad[0])]
            raise ValueError(f"{name} holds {held} at {where}, {why}mask it or mend it")


def allowed(batch: int, head: int, row: int, given: Arranged, rules: Rules) -> Array:
    """Return which keys `[s]` one query may see."""
    _, heads, rows, keys = given.logits_shape
    offset = np.broadcast_to(rules.offset, (batch + 1,))[batch]
    grid = Grid(batch, head, row, row + int(offset), np.arange(keys), heads, rows, keys)
    seen = np.ones(keys, dtype=bool)
    for mask in rules.masks:
        seen &= mask.allows(grid)
    return seen
