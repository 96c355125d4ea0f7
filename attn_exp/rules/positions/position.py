"""What a way to mark positions is: a change of x before the projections, or of q and k after them."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from attn_exp.config.fields import read_own

Array = NDArray[Any]


class Position:
    """Marks where tokens stand; what a way does not change it returns as it came."""

    changes_x = False

    def __post_init__(self) -> None:
        """Hold what Python gives to the bounds on the fields, as the command line does."""
        read_own(self)

    def embed(self, x: Array) -> Array:
        """Return x `[t m]` with the positions of its rows marked."""
        return x

    def turn(self, heads: Array, positions: Array) -> Array:
        """Return queries or keys `[... t d]` with `positions` `[t]` marked."""
        return heads

    def misfit(self, size: int) -> str | None:
        """Say why heads of that size do not fit, in the user's words, or None where they do."""
        return None
