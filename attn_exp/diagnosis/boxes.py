"""One stage of a person's own computation, a box of a worksheet: which of a run's numbers it gives, and how exactly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.cells import Cells
from attn_exp.errors import UserError
from attn_exp.problem.problem import Problem

KEYED = ("scores", "logits", "capped", "masked", "weights")
"""Stages with a column for each key."""
TURNED = "rows and columns exchanged"
AS_GOOD_AS_MINUS_INFINITY = -1e4


@dataclass(frozen=True, eq=False)
class Box:
    """The numbers given of one stage, in the shape of the whole, NaN where none is given.

    `halves` is how far each may lie from the truth by rounding. `own` is that by each number's own digits.
    `names` are those of its rows and columns, `note` says how it was read where that could be otherwise.
    """

    stage: str
    values: Array
    halves: Array
    own: Array
    names: tuple[tuple[str, ...], tuple[str, ...]]
    note: str = ""

    @cached_property
    def given(self) -> Array:
        """Which cells are given."""
        return ~np.isnan(self.values)

    @cached_property
    def far(self) -> Array | None:
        """Which cells are given as numbers beyond all others; None where none is."""
        far = np.isinf(self.values) | (np.abs(self.values) >= -AS_GOOD_AS_MINUS_INFINITY)
        return far if far.any() else None

    @property
    def counted(self) -> str:
        """How many numbers are given, and how they were read where that could be otherwise."""
        count = int(self.given.sum())
        share = f"all {count} numbers" if count == self.values.size else f"{count} of {self.values.size} numbers"
        return f"{share}, read as {self.note}" if self.note else share

    def misses(self, array: Array | None, widening: Array | float = 0.0) -> Array:
        """Return the cells that are not these numbers, rounded."""
        if array is None or array.shape != self.values.shape:
            return self.given
        with np.errstate(invalid="ignore"):
            near = np.abs(self.values - array) <= self.halves * (1 + 1e-9) + widening
            if self.far is not None:
                near |= (self.values == array) | (np.isneginf(array) & (self.values <= AS_GOOD_AS_MINUS_INFINITY))
        return np.asarray(self.given & ~near)

    def written(self, place: Iterable[int], number: float) -> str:
        """Write a number to as many decimals as the one given there."""
        half = float(self.halves[tuple(place)])
        digits = max(0, round(-np.log10(2 * half))) if half > 0 else 6
        return f"{number:.{digits}f}" if digits <= 6 else f"{number:.6g}"

    def where(self, place: Iterable[int]) -> str:
        """Say where a cell stands."""
        *head, row, column = place
        rows, columns = self.names
        which = f"head {head[0] + 1}, " if head and self.values.shape[0] > 1 else ""
        name = f"key {columns[column]}" if self.stage in KEYED else f"number {column + 1}"
        return f"{which}row {rows[row]}, {name}"


def box(stage: str, cells: Cells, whole: Array, problem: Problem) -> Box:
    """Put the numbers given of a stage where they belong in the whole `[h t s]`, `[h t d]` or `[t m]`.

    A matrix is that of the first head where there are several, or those of all heads one below the other. Numbers that
    fit only with rows and columns exchanged are turned. Fewer rows and columns are the first ones, unless they are
    named.

    Raises:
        UserError: more numbers than there are, or names that are no tokens.
    """
    shape = whole.shape if whole.ndim == 3 else (1, *whole.shape)
    rows = problem.key_tokens if stage in "kv" else problem.tokens
    columns = problem.key_tokens if stage in KEYED else tuple(str(place + 1) for place in range(shape[2]))
    parts = [cells.values, np.maximum(cells.halves, floor(cells)), np.maximum(cells.own, floor(cells))]
    turned = not fits(cells.values.shape, shape) and fits(cells.values.shape[::-1], shape) and cells.values.ndim == 2
    if turned:
        parts = [part.T for part in parts]
        cells = replace(cells, rows=cells.columns, columns=cells.rows)
    if not fits(parts[0].shape, shape):
        raise UserError(misfit(stage, parts[0].shape, shape))
    values, halves, own = (spread(stage, part, shape, cells, (rows, columns)).reshape(whole.shape) for part in parts)
    notes = [TURNED] if turned else []
    notes += ["the first head"] if shape[0] > 1 and parts[0].ndim == 2 and len(parts[0]) <= shape[1] else []
    return Box(stage, values, halves, own, (rows, columns), ", ".join(notes))


def floor(cells: Cells) -> float:
    """Return the rounding of the type that the numbers came in."""
    finite = np.abs(cells.values[np.isfinite(cells.values)])
    return float(cells.floor * finite[finite < -AS_GOOD_AS_MINUS_INFINITY].max(initial=1e-30))


def fits(given: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Say whether numbers of one shape are all or the first of another `[h r c]`."""
    heads, rows, columns = shape
    if len(given) == 3:
        return given[0] == heads and given[1] <= rows and given[2] <= columns
    if len(given) == 2:
        return given[1] <= columns and (given[0] <= rows or given[0] == heads * rows)
    return len(given) == 1 and given[0] <= columns


def misfit(stage: str, given: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """Say what was expected."""
    heads, rows, columns = shape
    per_head = f" for each of {heads} heads" if heads > 1 else ""
    wanted = f"{rows} rows of {columns} numbers{per_head}, or some of them"
    return f"answer.{stage} has shape {list(given)}; expected {wanted}"


def spread(
    stage: str, part: Array, shape: tuple[int, ...], cells: Cells, names: tuple[tuple[str, ...], tuple[str, ...]]
) -> Array:
    """Return the numbers in the shape of the whole, NaN elsewhere."""
    whole = np.full(shape, np.nan)
    part = part[None] if part.ndim == 1 else part
    if part.ndim == 3:
        whole[:, : part.shape[1], : part.shape[2]] = part
        return whole
    keys = cells.columns if stage in KEYED else ()
    columns = placed(keys, names[1], part.shape[1], f"answer.{stage}: column")
    if len(part) > shape[1]:
        whole.reshape(-1, shape[2])[:, columns] = part
    else:
        rows = placed(cells.rows, names[0], len(part), f"answer.{stage}: row")
        whole[0][np.ix_(rows, columns)] = part
    return whole


def placed(given: tuple[str, ...], names: tuple[str, ...], count: int, what: str) -> list[int]:
    """Return where named rows or columns belong; names none of which is a token's are no names of tokens."""
    lower = [name.lower() for name in names]
    known = [name.lower() in lower for name in given]
    if not any(known):
        return list(range(count))
    for name, is_known in zip(given, known, strict=True):
        if not is_known:
            raise UserError(f"{what} {name!r} is no token; expected {', '.join(names)}")
    free = {name: [place for place, other in enumerate(lower) if other == name] for name in lower}
    for name, spots in free.items():
        if sum(other.lower() == name for other in given) > len(spots):
            raise UserError(f"{what} {name!r} stands there more often than the token does")
    return [free[name.lower()].pop(0) for name in given]
