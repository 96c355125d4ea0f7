"""The contract of a mask: a rule that determines which keys each query may attend to."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.rules.grid import Grid, Rule


class Span(NamedTuple):
    """Bounds on the keys that some consecutive queries may see, as two half-open ranges of key indices.

    - `some_start`, `some_stop`: none of the queries sees a key outside this range. Blockwise forms skip those keys.
    - `every_start`, `every_stop`: all of the queries see every key in this range. Blockwise forms need no mask there.

    A mask that knows no bounds returns `Span(0, keys, 0, 0)`.
    """

    some_start: int
    some_stop: int
    every_start: int
    every_stop: int


class Mask(Rule):
    """A rule that determines which keys each query may attend to. `AllOf` and `AnyOf` join several masks."""

    def allows(self, grid: Grid) -> Array | bool:
        """Return which keys the queries of the grid may see, as booleans that broadcast to the grid."""
        raise NotImplementedError

    def span(self, batch: int, first: int, last: int, keys: int) -> Span:
        """Return bounds on the keys that queries of one example see, if their positions are `first` to `last`."""
        return Span(0, self.unpadded(keys), 0, 0)

    def unpadded(self, keys: int) -> int:
        """Return the number of keys before the padding at the end."""
        return keys

    def inverted(self) -> Mask:
        """Return the mask for users whose True means hidden: with its booleans inverted, if it has any."""
        return self

    def with_tokens(self, tokens: Sequence[str]) -> Mask:
        """Return the mask for keys with these names; most masks do not use names, and return themselves."""
        return self


@dataclass(frozen=True)
class Several(Mask):
    masks: tuple[Mask, ...]

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        return next((reason for mask in self.masks if (reason := mask.misfit(heads, rows, keys))), None)


class AllOf(Several):
    """Lets a query see a key iff all of its masks do."""

    def unpadded(self, keys: int) -> int:
        return min((mask.unpadded(keys) for mask in self.masks), default=keys)

    def allows(self, grid: Grid) -> Array | bool:
        return functools.reduce(operator.and_, (mask.allows(grid) for mask in self.masks), True)

    def span(self, batch: int, first: int, last: int, keys: int) -> Span:
        # the first span, in which every query sees every key, is the result without masks
        return intersect_spans([Span(0, keys, 0, keys), *(mask.span(batch, first, last, keys) for mask in self.masks)])


class AnyOf(Several):
    """Lets a query see a key iff at least one of its masks does."""

    def allows(self, grid: Grid) -> Array | bool:
        return functools.reduce(operator.or_, (mask.allows(grid) for mask in self.masks), False)

    def span(self, batch: int, first: int, last: int, keys: int) -> Span:
        spans = [mask.span(batch, first, last, keys) for mask in self.masks]
        return Span(min(span.some_start for span in spans), max(span.some_stop for span in spans), 0, 0)


@dataclass(frozen=True)
class Holes(Mask):
    """Every query sees key `j` iff `kept[j]`: a padding mask for padding anywhere in the sequence."""

    kept: tuple[bool, ...]

    def unpadded(self, keys: int) -> int:
        return max((index + 1 for index, kept in enumerate(self.kept[:keys]) if kept), default=0)

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        count = len(self.kept)
        return None if count == keys else f"mask.padding.keys has {count} entries, but there are {keys} keys"

    def allows(self, grid: Grid) -> Array | bool:
        return np.asarray(self.kept)[grid.key]


def intersect_spans(spans: Sequence[Span]) -> Span:
    """Return bounds on the keys that all of several masks allow, given the bounds of each mask."""
    some_start, some_stop, every_start, every_stop = zip(*spans, strict=True)
    return make_span((max(some_start), min(some_stop)), (max(every_start), min(every_stop)))


def make_span(some: tuple[int, int], every: tuple[int, int]) -> Span:
    """Build a `Span` from its ranges `some` and `every`; an empty range becomes `0, 0`."""
    return Span(*(some if some[0] < some[1] else (0, 0)), *(every if every[0] < every[1] else (0, 0)))
