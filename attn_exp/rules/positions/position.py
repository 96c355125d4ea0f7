"""What a way to mark positions is: a change of x before the projections, or of q and k after them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from attn_exp.arrays import Array
from attn_exp.rules.grid import Held

Vector = Sequence[float]


def unchanged(numbers: Vector, position: int) -> list[float]:
    """Return the numbers as they came."""
    return list(numbers)


@dataclass(frozen=True)
class Twin:
    """The same way once more, for one vector of floats at one position: pure `math`, derived in another way.

    `embed` marks a row of x, `turn` one head of a query, `turn_key` one head of a key; each is
    `(numbers, position) -> numbers`.
    """

    embed: Callable[[Vector, int], list[float]] = unchanged
    turn: Callable[[Vector, int], list[float]] = unchanged
    turn_key: Callable[[Vector, int], list[float]] = unchanged


class Position(Held):
    """Marks where tokens stand; what a way does not change it returns as it came.

    `changes_x` says that it marks x; `relative` that a product of a marked query and a marked key depends on the
    distance of the two alone.
    """

    changes_x: ClassVar[bool] = False
    relative: ClassVar[bool] = False

    def embed(self, x: Array) -> Array:
        """Return x `[t m]` with the positions of its rows marked."""
        return x

    def turn(self, heads: Array, positions: Array) -> Array:
        """Return queries `[... t d]` with `positions` `[t]` marked; keys too, where `turn_key` says nothing else."""
        return heads

    def turn_key(self, heads: Array, positions: Array) -> Array:
        """Return keys `[... s d]` with `positions` `[s]` marked."""
        return self.turn(heads, positions)

    def twin(self) -> Twin | None:
        """Return what checks the answer, or None where nobody wrote it: the run then says that nothing was checked."""
        return None

    def other_pairs(self) -> Position | None:
        """Return the same with numbers paired the other way, or None where it turns no pairs."""
        return None

    def misfit(self, size: int) -> str | None:
        """Say why heads of that size do not fit, in the user's words, or None where they do."""
        return None
