"""The contract of a generator: given a seed, each call draws the numbers that the library would draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from attn_exp.arrays import Array, Shape


class Start(NamedTuple):
    """The seed of a stream; `draws_once` means that only one array is drawn from it."""

    seed: int
    draws_once: bool = False


class Stream(Protocol):
    """A seeded generator: each call draws the next numbers, in the dtype that the library uses."""

    def uniform(self, shape: Shape, low: float, high: float) -> Array:
        """Draw uniform numbers in `[low, high)`."""
        ...

    def normal(self, shape: Shape, mean: float, spread: float) -> Array:
        """Draw normal numbers with this mean and the standard deviation `spread`."""
        ...

    def integers(self, shape: Shape, low: int, high: int) -> Array:
        """Draw integers in `[low, high)`."""
        ...


@dataclass(frozen=True)
class Generator:
    """A library's generator; each file defines one or more by name in `GENERATORS`.

    - `begin`: seeds the generator and returns its stream.
    - `least`, `most`: the range of seeds that the library accepts; None means no upper limit.
    """

    begin: Callable[[Start], Stream]
    least: int = 0
    most: int | None = None
