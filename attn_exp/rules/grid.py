"""The grid on which masks and score rules are evaluated, and the base class of both.

A `Grid` consists of index arrays into the logits that broadcast against each other, so the same code works for a single
logit in a loop, a whole matrix, and one block of a long sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.kinds import Kind, own_kinds, read_own


@dataclass(frozen=True)
class Grid:
    """A region of the logits `[b h t s]`, as index arrays that broadcast to the shape of the region.

    - `batch` `[b 1 1 1]`, `head` `[h 1 1]`, `row` `[t 1]`, `key` `[s]`: indices that count from 0; for a single logit,
      they are integers.
    - `query`: the position of a row among the keys, `row + offset`. Causal masks, windows and ALiBi compare it with
      `key`.
    - `heads`, `rows`, `keys`: the sizes of the whole problem, not of the region.

    The offset is 0 if the first query is aligned with the first key (top-left alignment). It is `keys - rows` if the
    last query is aligned with the last key (bottom-right alignment). When decoding with a cache, it is the number of
    past keys. Forms may order the axes differently, so rules combine the index arrays only by broadcasting.
    """

    batch: Array | int
    head: Array | int
    row: Array | int
    query: Array | int
    key: Array | int
    heads: int
    rows: int
    keys: int


def take_values(values: Array, grid: Grid) -> Array:
    """Return the entries of an array `[b h t s]` on a grid; an axis that is missing or has length 1 is broadcast."""
    padded = values.reshape((1,) * (4 - values.ndim) + values.shape)
    indices = (grid.batch, grid.head, grid.row, grid.key)
    entries = tuple(0 if size == 1 else index for size, index in zip(padded.shape, indices, strict=True))
    return np.asarray(padded[entries])


class Validated:
    """The base of all rules: fields that are set in Python are checked like settings on the command line."""

    kinds: ClassVar[Mapping[str, Kind]]

    def __init_subclass__(cls) -> None:
        cls.kinds = own_kinds(cls)

    def __post_init__(self) -> None:
        read_own(self, self.kinds)


class Rule(Validated):
    """The base of masks and score rules.

    - `relative`: whether the result, `allows` of a mask or `bias` of a score rule, depends only on the head and on
      `key - query`. Blockwise forms then evaluate it once per difference.
    - `one_sequence`: whether the rule identifies tokens by index. Queries and keys must then be tokens of one sequence.
    - `instead`: maps the name of a setting to the settings that override it.
    """

    relative: ClassVar[bool] = False
    one_sequence: ClassVar[bool] = False
    instead: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        """Return a message for the user if the rule does not fit logits `[heads rows keys]`, else None."""
        return None


def as_number_array(values: Any, name: str) -> Array:
    """Convert nested lists to an array.

    Raises:
        ValueError: rows have different lengths, or values are not numbers; the message begins with `name`.
    """
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):  # rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be rows of equal length, such as [[1,0],[1,1]]")
    return array


AXES = ("batch", "heads", "queries", "keys")


def broadcast_misfit(name: str, shape: Sequence[int], *sizes: int) -> str | None:
    """Return a message if an array does not broadcast to logits `[heads queries keys]` or `[batch ...]`, else None."""
    if len(shape) > 4:
        return f"{name} of shape {list(shape)} has {len(shape)} axes; expected at most 4"
    for axis, size, expected in zip(range(-1, -5, -1), shape[::-1], sizes[::-1], strict=False):
        if size not in (1, expected):
            return (
                f"{name} of shape {list(shape)} does not broadcast to [{', '.join(AXES[-len(sizes) :])}] = "
                f"{list(sizes)}: axis {axis} has {size}, expected 1 or {expected} for the {AXES[axis]}"
            )
    return None
