"""What a rule is: a statement about places of the logits that no form has to know.

A rule is a frozen dataclass; its fields are its settings. It speaks about a `Grid`: index arrays that
broadcast against each other, so the same lines serve one scalar of a loop, a whole matrix, and one block of
a long sequence.
"""

from __future__ import annotations

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


class Mask:
    """A rule that says which places may attend: True = may attend.

    `relative` says that the answer depends on `key - query` alone; forms that work by blocks then ask once per
    difference instead of once per place.
    """

    relative: ClassVar[bool] = False

    def allows(self, grid: Grid) -> Array | bool:
        """Return a boolean array that broadcasts to the grid."""
        raise NotImplementedError

    def span(self, batch: int, first: int, last: int, keys: int) -> Span:
        """Bound the keys of one batch entry's queries at positions `first` to `last`, both included."""
        return Span(0, keys, 0, 0)


class Score:
    """A rule that changes logits. They run in this order: `bend`, then `bias`; masks come after both.

    `relative` says that `bias` depends on the head and `key - query` alone, as in `Mask`.
    """

    relative: ClassVar[bool] = False

    def bend(self, logits: Any) -> Any:
        """Change each scaled logit, in an array or alone, by its own value, such as a soft-cap."""
        return logits

    def bias(self, grid: Grid) -> Array | float | None:
        """Return what is added to the logits at these places, or None for nothing."""
        return None

    def extra(self, head: Array | int) -> Any:
        """Return one more logit per head that takes part in the normalizer and has no value, or None."""
        return None


@dataclass(frozen=True)
class Rules:
    """All that decides WHAT attention computes, whatever form computes it.

    `logits = scale * q k^T`; `capped` = each score rule's `bend`, in order; `masked` = capped + every `bias`,
    and -inf where any mask forbids; `weights = normalizer(masked)`. `offset` is an integer, or `[b]` integers.
    """

    scale: float = 1.0
    masks: tuple[Mask, ...] = ()
    scores: tuple[Score, ...] = ()
    normalizer: str = "softmax"
    offset: int | Array = field(default=0)


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
