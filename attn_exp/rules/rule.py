"""What a rule is: a statement about places of the logits that no form has to know.

A rule is a frozen dataclass; its fields are its settings. It speaks about a `Grid`: index arrays that
broadcast against each other, so the same lines serve one scalar of a loop, a whole matrix, and one block of
a long sequence.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Grid:
    """The places of a region of the logits `[b h t s]`, as indices that broadcast to it.

    `batch` `[b 1 1 1]`, `head` `[h 1 1]`, `row` `[t 1]` and `key` `[s]` count from 0; plain integers for one
    place. Forms may put the axes in another order, so rules combine these arrays by broadcasting alone.
    `query` is the position of a row among the keys, `row + offset`: it is what causal masks,
    windows and ALiBi compare with `key`. The offset is 0 when the first query stands beside the first key
    (top-left alignment), the number of past keys when decoding with a cache, and `keys - rows` when the last
    query stands beside the last key (bottom-right alignment).

    `heads`, `rows` and `keys` are the sizes of the whole problem, not of the region.
    """

    batch: Array | int
    head: Array | int
    row: Array | int
    query: Array | int
    key: Array | int
    heads: int
    rows: int
    keys: int


class Span(NamedTuple):
    """Which keys a run of neighbouring queries may see: nobody beyond `some`, everybody within `every`.

    Both are half-open ranges of key indices. Forms that work by blocks skip what lies outside `some` and need no
    mask inside `every`; a rule that cannot tell gives `Span(0, keys, 0, 0)`.
    """

    some_start: int
    some_stop: int
    every_start: int
    every_stop: int


class Rule:
    """What masks and score rules have in common.

    `relative` says that the answer, a mask's `allows` or a score rule's `bias`, depends on the head and `key - query`
    alone; forms that work by blocks then ask once per difference instead of once per place.
    """

    relative: ClassVar[bool] = False

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        """Say why the rule does not fit logits `[heads rows keys]`, in the user's words, or None where it does."""
        return None


class Mask(Rule):
    """A rule that says which places may attend: True = may attend.

    Masks compose: `causal & window` allows what both allow, `causal | prefix` what either does.
    """

    def allows(self, grid: Grid) -> Array | bool:
        """Return a boolean array that broadcasts to the grid."""
        raise NotImplementedError

    def span(self, batch: int, first: int, last: int, keys: int) -> Span:
        """Bound the keys of one batch entry's queries at positions `first` to `last`, both included."""
        return Span(0, keys, 0, 0)

    def turned(self) -> Mask:
        """Return what the mask means where True blocks; only masks that a user writes as booleans have two readings."""
        return self

    def __and__(self, other: Mask) -> Mask:
        return AllOf((self, other))

    def __or__(self, other: Mask) -> Mask:
        return AnyOf((self, other))


class Score(Rule):
    """A rule that changes logits. They run in this order: `bend`, then `bias`; masks come after both."""

    def bend(self, logits: Any) -> Any:
        """Change each scaled logit, in an array or alone, by its own value, such as a soft-cap."""
        return logits

    def bound(self) -> float | None:
        """Return c where `bend` is `c tanh(logit / c)`, which other libraries know by that number, or None."""
        return None

    def bias(self, grid: Grid) -> Array | float | None:
        """Return what is added to the logits at these places, or None for nothing."""
        return None

    def extra(self, head: Array | int) -> Any:
        """Return one more logit per head that takes part in the normalizer and has no value, or None."""
        return None


@dataclass(frozen=True)
class AllOf(Mask):
    """Allows a place iff every one of its masks does."""

    masks: tuple[Mask, ...]

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        return next((reason for mask in self.masks if (reason := mask.misfit(heads, rows, keys))), None)

    def allows(self, grid: Grid) -> Array | bool:
        return functools.reduce(operator.and_, (mask.allows(grid) for mask in self.masks), True)

    def span(self, batch: int, first: int, last: int, keys: int) -> Span:
        spans = [mask.span(batch, first, last, keys) for mask in self.masks] or [Span(0, keys, 0, keys)]
        some = max(each.some_start for each in spans), min(each.some_stop for each in spans)
        every = max(each.every_start for each in spans), min(each.every_stop for each in spans)
        return bounds(some, every)


@dataclass(frozen=True)
class AnyOf(Mask):
    """Allows a place iff at least one of its masks does."""

    masks: tuple[Mask, ...]

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        return next((reason for mask in self.masks if (reason := mask.misfit(heads, rows, keys))), None)

    def allows(self, grid: Grid) -> Array | bool:
        return functools.reduce(operator.or_, (mask.allows(grid) for mask in self.masks), False)

    def span(self, batch: int, first: int, last: int, keys: int) -> Span:
        spans = [mask.span(batch, first, last, keys) for mask in self.masks]
        some = [(each.some_start, each.some_stop) for each in spans if each.some_start < each.some_stop] or [(0, 0)]
        hull = min(a for a, _ in some), max(b for _, b in some)
        return bounds(hull, widest([(each.every_start, each.every_stop) for each in spans]))


def bounds(some: tuple[int, int], every: tuple[int, int]) -> Span:
    """Return the span of two ranges, each empty as `0, 0` where it holds nothing."""
    return Span(*(some if some[0] < some[1] else (0, 0)), *(every if every[0] < every[1] else (0, 0)))


def widest(ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the longest of some ranges."""
    return max(ranges, key=lambda each: each[1] - each[0], default=(0, 0))


@dataclass(frozen=True)
class Rules:
    """All that decides WHAT attention computes, whatever form computes it.

    `logits = scale * q k^T`; `capped` = each score rule's `bend`, in order; `masked` = capped + every `bias`,
    and -inf where any mask forbids; `weights = normalizer(masked)`. `offset` is an integer, or `[b]` integers.
    `softmax_dtype` is the type the normalizer works in where a form rounds stage by stage; None keeps the input's.
    `bend_last` bends after biases and masks instead of before, as old code did: a bent -inf is finite, and leaks.
    """

    scale: float = 1.0
    masks: tuple[Mask, ...] = ()
    scores: tuple[Score, ...] = ()
    normalizer: str = "softmax"
    offset: int | Array = field(default=0)
    softmax_dtype: Any = None
    bend_last: bool = False


def whole_grid(rules: Rules, heads: int, rows: int, keys: int, batches: int | None = None) -> Grid:
    """Return the grid of every place of the logits `[h t s]`, or `[b h t s]` where `batches` is given."""
    row = np.arange(rows)[:, None]
    offset = np.asarray(rules.offset)
    return Grid(
        batch=0 if batches is None else np.arange(batches)[:, None, None, None],
        head=np.arange(heads)[:, None, None],
        row=row,
        query=row + (offset[:, None, None, None] if offset.ndim else offset),
        key=np.arange(keys),
        heads=heads,
        rows=rows,
        keys=keys,
    )


def at(values: Array, grid: Grid) -> Array:
    """Return the values of an array `[b h t s]` at the grid's places; missing and single axes serve every index."""
    whole = values.reshape((1,) * (4 - values.ndim) + values.shape)
    indices = (grid.batch, grid.head, grid.row, grid.key)
    taken = tuple(0 if size == 1 else index for size, index in zip(whole.shape, indices, strict=True))
    return np.asarray(whole[taken])


def grid_of(values: Any, name: str) -> Array:
    """Return nested lists as an array.

    Raises:
        ValueError: rows of different lengths, or what are no numbers.
    """
    try:
        array = np.asarray(values)
        array.astype(np.float64)
    except (TypeError, ValueError):
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


def is_whole(value: Any, least: int) -> bool:
    """Say whether a setting is a whole number of at least `least`; true and false are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= least)


def is_number(value: Any) -> bool:
    """Say whether a setting is a number; true and false are not."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
