"""What masks and score rules have in common.

A rule is a frozen dataclass; its fields are its settings. It speaks about a `Grid`: index arrays that
broadcast against each other, so the same lines serve one scalar of a loop, a whole matrix, and one block of
a long sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.fields import own_kinds, read_own
from attn_exp.config.kinds import Kind


class Rule:
    """What masks and score rules have in common.

    `relative` says that the answer, a mask's `allows` or a score rule's `bias`, depends on the head and `key - query`
    alone; forms that work by blocks then ask once per difference instead of once per place. `one_sequence` says that it
    knows tokens by number, so that queries and keys must be tokens of one sequence. `instead` names settings and the
    others that, where they are given, decide instead.
    """

    relative: ClassVar[bool] = False
    one_sequence: ClassVar[bool] = False
    instead: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    kinds: ClassVar[Mapping[str, Kind]]

    def __init_subclass__(cls) -> None:
        cls.kinds = own_kinds(cls)

    def __post_init__(self) -> None:
        """Hold what Python gives to the bounds on the fields, as the command line does."""
        read_own(self, self.kinds)

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


def broadcast_misfit(name: str, values: Array, heads: int, rows: int, keys: int) -> str | None:
    """Say which axis of an array does not broadcast to `[heads rows keys]`, or None."""
    for axis, size, what in ((-1, keys, "keys"), (-2, rows, "queries"), (-3, heads, "heads")):
        if values.ndim >= -axis and values.shape[axis] not in (1, size):
            return (
                f"{name} of shape {list(values.shape)} does not broadcast to [heads, queries, keys] = "
                f"[{heads}, {rows}, {keys}]: axis {axis} has {values.shape[axis]}, expected 1 or {size} for the {what}"
            )
    return None if values.ndim <= 4 else f"{name} has {values.ndim} axes; expected at most 4"
