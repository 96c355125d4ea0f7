"""Finds the input that made an output NaN."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms._operator.arrange import Arranged
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.mask import AllOf
from attn_exp.rules.rules import Rules

PLACE = ("batch", "head", "token", "entry")


def blame(context: Array, given: Arranged, rules: Rules, leaks: str | None = None) -> None:
    """Name the NaN or infinity in the input that made the output NaN; pass where every output is a number.

    Two cases are warnings. A form may say that what masked keys hold `leaks`, and why. Where finite inputs made NaN,
    something overflowed on the way, and the operator defines it so.

    Raises:
        ValueError: the input holds it where a query looks.
    """
    wide = context.astype(np.float32, copy=False) if context.dtype.itemsize < 4 else context
    if not np.isnan(wide.min(initial=0)):  # the smallest of numbers and a NaN is NaN
        return
    bad = np.isnan(wide)
    batch, head, row, _ = (int(index) for index in np.argwhere(bad)[0])
    if culprit := strange("query", given.query, (batch, head), [row]):
        raise ValueError(f"{culprit}, mask it or mend it")
    seen = allowed(batch, head, row, given, rules)
    group = head * given.key.shape[1] // given.query.shape[1]
    for name, array in (("key", given.key), ("value", given.value)):
        if culprit := strange(name, array, (batch, group), np.flatnonzero(seen)):
            raise ValueError(f"{culprit}, which query {row} may see; mask it or mend it")
    hidden = [
        culprit
        for name, array in (("key", given.key), ("value", given.value))
        if leaks and (culprit := strange(name, array, (batch, group), np.flatnonzero(~seen)))
    ]
    reason = f"{hidden[0]}, which query {row} may not see; {leaks}" if hidden else f"logits overflow {context.dtype}"
    warnings.warn(f"{reason}: the output holds NaN", RuntimeWarning, stacklevel=4)


def strange(name: str, array: Array, place: tuple[int, int], tokens: Iterable[int]) -> str | None:
    """Say where one of these tokens holds a number that is not finite, and which, or None where all are."""
    for token in tokens:
        bad = np.flatnonzero(~np.isfinite(array[(*place, token)]))
        if len(bad):
            where = ", ".join(f"{axis} {index}" for axis, index in zip(PLACE, (*place, token, bad[0]), strict=True))
            return f"{name} holds {array[(*place, token, bad[0])]} at {where}"
    return None


def allowed(batch: int, head: int, row: int, given: Arranged, rules: Rules) -> Array:
    """Return which keys `[s]` one query may see."""
    _, heads, rows, keys = given.logits_shape
    offset = np.asarray(rules.offset)
    position = row + int(offset[batch] if offset.ndim else offset)
    grid = Grid(batch, head, row, position, np.arange(keys), heads, rows, keys)
    return np.broadcast_to(AllOf(rules.masks).allows(grid), keys)
