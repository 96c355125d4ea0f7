"""Places of the logits, as index arrays that broadcast, and what the masks and score rules that speak of them share.

A rule is a frozen dataclass; its fields are its settings. It speaks about a `Grid`: index arrays that
broadcast against each other, so the same lines serve one scalar of a loop, a whole matrix, and one block of
a long sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.fields import own_kinds, read_own
from attn_exp.config.kinds import Kind


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


def at(values: Array, grid: Grid) -> Array:
    """Return the values of an array `[b h t s]` at the grid's places; missing and single axes serve every index."""
    whole = values.reshape((1,) * (4 - values.ndim) + values.shape)
    indices = (grid.batch, grid.head, grid.row, grid.key)
    taken = tuple(0 if size == 1 else index for size, index in zip(whole.shape, indices, strict=True))
    return np.asarray(whole[taken])


class Held:
    """What all rules have in common: a rule made in Python is held to the bounds on its fields, as a typed one is."""

    kinds: ClassVar[Mapping[str, Kind]]

    def __init_subclass__(cls) -> None:
        cls.kinds = own_kinds(cls)

    def __post_init__(self) -> None:
        read_own(self, self.kinds)


class Rule(Held):
    """What masks and score rules have in common.

    `relative` says that the answer, a mask's `allows` or a score rule's `bias`, depends on the head and `key - query`
    alone; forms that work by blocks then ask once per difference instead of once per place. `one_sequence` says that it
    knows tokens by number, so that queries and keys must be tokens of one sequence. `instead` names settings and the
    others that, where they are given, decide instead.
    """

    relative: ClassVar[bool] = False
    one_sequence: ClassVar[bool] = False
    instead: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        """Say why the rule does not fit logits `[heads rows keys]`, in the user's words, or None where it does."""
        return None


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


AXES = ("batch", "heads", "queries", "keys")


def broadcast_misfit(name: str, shape: Sequence[int], *sizes: int) -> str | None:
    """Say why an array does not broadcast to logits `[heads queries keys]`, or `[batch ...]`, or return None."""
    if len(shape) > 4:
        return f"{name} of shape {list(shape)} has {len(shape)} axes; expected at most 4"
    for axis, size, expected in zip(range(-1, -5, -1), shape[::-1], sizes[::-1], strict=False):
        if size not in (1, expected):
            return (
                f"{name} of shape {list(shape)} does not broadcast to [{', '.join(AXES[-len(sizes) :])}] = "
                f"{list(sizes)}: axis {axis} has {size}, expected 1 or {expected} for the {AXES[axis]}"
            )
    return None
