"""The contract of a position rule: it changes x before the projections, or q and k after them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from attn_exp.arrays import Array
from attn_exp.rules.grid import Validated

Vector = Sequence[float]


def unchanged(numbers: Vector, position: int) -> list[float]:
    return list(numbers)


@dataclass(frozen=True)
class Twin:
    """An independent implementation for one vector at one position, with floats and `math` only.

    Each function takes the numbers of a vector and its position, and returns the changed numbers.

    - `embed`: changes a row of x.
    - `turn`: changes one head of a query.
    - `turn_key`: changes one head of a key.
    """

    embed: Callable[[Vector, int], list[float]] = unchanged
    turn: Callable[[Vector, int], list[float]] = unchanged
    turn_key: Callable[[Vector, int], list[float]] = unchanged


class Position(Validated):
    """A rule that encodes token positions; methods that a rule does not override return their input.

    - `changes_x`: whether the rule changes x.
    - `relative`: whether the dot product of an encoded query and an encoded key depends only on their distance.
    """

    changes_x: ClassVar[bool] = False
    relative: ClassVar[bool] = False

    def embed(self, x: Array) -> Array:
        """Encode the positions of the rows of x `[t m]`."""
        return x

    def turn(self, heads: Array, positions: Array) -> Array:
        """Encode `positions` `[t]` in queries `[... t d]`; by default, `turn_key` does the same with keys."""
        return heads

    def turn_key(self, heads: Array, positions: Array) -> Array:
        """Encode `positions` `[s]` in keys `[... s d]`."""
        return self.turn(heads, positions)

    def twin(self) -> Twin | None:
        """Return the independent implementation; without one, the run reports that nothing was checked."""
        return None

    def misfit(self, size: int) -> str | None:
        """Return a message for the user if the rule does not fit heads of that size, else None."""
        return None
