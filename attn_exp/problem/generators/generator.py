"""The contract of a generator: a library's random numbers after its seed, in the order of its calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from attn_exp.arrays import Array, Shape


class Start(NamedTuple):
    """The seed of a stream, and whether only one array is drawn from it."""

    seed: int
    alone: bool = False


class Stream(Protocol):
    """A seeded generator: each call draws the next numbers, in the dtype in which the library draws them."""

    def uniform(self, shape: Shape, low: float, high: float) -> Array:
        """Draw uniform numbers in `[low, high)`."""
        ...

    def normal(self, shape: Shape, mean: float, spread: float) -> Array:
        """Draw normal numbers with the standard deviation `spread`."""
        ...

    def integers(self, shape: Shape, low: int, high: int) -> Array:
        """Draw integers in `[low, high)`."""
        ...


@dataclass(frozen=True)
class Generator:
    """A library's generator; a file holds one or several by name, as `GENERATORS`.

    - `begin`: returns its stream right after the seed.
    - `least`, `most`: the range of seeds that the library accepts; None means no upper limit.
    """

    begin: Callable[[Start], Stream]
    least: int = 0
    most: int | None = None
