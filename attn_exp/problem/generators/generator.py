"""What a generator is: a library's random numbers after its seed, in the order of its calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from attn_exp.arrays import Array

Shape = tuple[int, ...]


class Start(NamedTuple):
    """How a stream begins: its seed, and whether a single array is drawn from it."""

    seed: int
    alone: bool = False


class Stream(Protocol):
    """A generator at work: each call takes the next numbers, in the type in which the library draws them."""

    def uniform(self, shape: Shape, low: float, high: float) -> Array:
        """Return numbers from `low` up to, but without, `high`."""
        ...

    def normal(self, shape: Shape, mean: float, spread: float) -> Array:
        """Return normal numbers, `spread` their standard deviation."""
        ...

    def integers(self, shape: Shape, low: int, high: int) -> Array:
        """Return whole numbers from `low` up to, but without, `high`."""
        ...


@dataclass(frozen=True)
class Generator:
    """A library's generator; a file holds one, as `GENERATOR`, or several by their names, as `GENERATORS`.

    - `begin`: returns its stream right after the seed.
    - `least`, `most`: the seeds that the library takes; None where it takes any above.
    """

    begin: Callable[[Start], Stream]
    least: int = 0
    most: int | None = None
