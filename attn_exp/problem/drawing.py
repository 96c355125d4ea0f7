"""Arrays drawn at random: each from a stream of its own, or one after another by a library's generator."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array, draw
from attn_exp.config.inputs import STREAMS, Draw
from attn_exp.config.kinds import AT_LEAST_0, refuse
from attn_exp.errors import UserError
from attn_exp.problem.matrices import array

if TYPE_CHECKING:
    from attn_exp.problem.generators.generator import Stream

Shape = tuple[int, ...]


EXACT = 2**53
"""Up to here every whole number is a float64."""


class Distribution(NamedTuple):
    """Which random numbers: `spread * numbers + mean`, with bounds for uniform and whole ones; `key` says them."""

    name: str
    low: float | None = None
    high: float | None = None
    spread: float = 1.0
    mean: float = 0.0
    key: str = ""

    def bounds(self, lowest: float = 0.0) -> tuple[float, float]:
        """Return the bounds: from 0, or `lowest` for uniform numbers, to 1, or for whole numbers what is said.

        Normal numbers have none; what is returned for them is of no use.

        Raises:
            UserError: bounds that are missing, in no order, too far apart, or no whole numbers where those are drawn.
        """
        if self.name == "normal":
            return lowest, 1.0
        whole = self.name == "integers"
        if whole and self.high is None:
            raise UserError(f"{self.key}distribution=integers needs {self.key}high, the number that they stay below")
        usual = 0.0 if whole else lowest
        low, high = (usual if self.low is None else self.low), (1.0 if self.high is None else self.high)
        exact = max(abs(low), abs(high)) <= EXACT and low == int(low) and high == int(high)
        expected = "high above low" if not low < high else ""
        expected = "whole numbers up to 2^53, high above low" if whole and not exact else expected
        expected = expected or ("bounds less than 1.8e308 apart" if math.isinf(high - low) else "")
        if expected:
            raise UserError(f"{self.key}low={low:g} and {self.key}high={high:g}: expected {expected}")
        return low, high


class Numbers(NamedTuple):
    """Where the random arrays of a run come from: without a stream, each from one of its own, by its name."""

    generator: str
    seed: int
    stream: Stream | None

    def array(self, name: str, distribution: Distribution, shape: Shape) -> Array:
        """Return the array of that name, or the next of the generator."""
        if self.stream is not None:
            return next_array(self.stream, distribution, shape)
        numbers = draw(self.seed, name, distribution.name, shape, distribution.bounds(-1.0))
        return distribution.spread * numbers + distribution.mean


def begun(generator: str, seed: int, key: str = "seed", alone: bool = False) -> Numbers:
    """Return where random arrays come from, right after the seed; `alone` says that one array is all.

    Raises:
        UserError: an unknown generator, or a seed that it does not take.
    """
    if generator == STREAMS:
        if seed < 0:
            refuse(seed, key, AT_LEAST_0)
        return Numbers(STREAMS, seed, None)
    from attn_exp.problem import generators  # noqa: PLC0415 - most runs draw each array from a stream of its own

    return Numbers(generator, seed, generators.begin(generator, seed, alone, key))


def next_array(stream: Stream, distribution: Distribution, shape: Shape) -> Array:
    """Return the next array of a generator, multiplied and added to in the type in which its library draws."""
    numbers = next_numbers(stream, distribution, shape)
    if numbers.dtype.kind == "f":
        return np.asarray(numbers * numbers.dtype.type(distribution.spread) + numbers.dtype.type(distribution.mean))
    return np.asarray(distribution.spread * numbers + distribution.mean)


def next_numbers(stream: Stream, distribution: Distribution, shape: Shape) -> Array:
    """Return the next numbers of a generator as they are drawn."""
    if distribution.name == "normal":
        return stream.normal(shape, 0.0, 1.0)
    low, high = distribution.bounds()
    return (
        stream.integers(shape, int(low), int(high))
        if distribution.name == "integers"
        else stream.uniform(shape, low, high)
    )


def array_or_drawn(given: Any, key: str, source: Numbers) -> Array:
    """Return the numbers that a user wrote under a key, or what a `Draw` there describes, as a matrix of float64.

    Raises:
        UserError: as `array` and `drawn`.
    """
    return drawn(given, key, source) if isinstance(given, Draw) else array(given, key)


def drawn(given: Draw, key: str, source: Numbers) -> Array:
    """Return the matrix of float64 that a `Draw` under that key describes.

    Raises:
        UserError: a generator or seed that does not fit, or an entry or row beyond the shape.
    """
    distribution = Distribution(given.distribution, given.low, given.high, given.spread, given.mean, f"{key}.")
    last = key.rpartition(".")[2]
    name = "x" if last == "vectors" else last
    numbers = source_of(given, key, source)
    if given.by_row:
        lines = [numbers.array(name, distribution, given.shape[-1:]) for _ in range(math.prod(given.shape[:-1]))]
        matrices = np.stack(lines).reshape(-1, *given.shape[-2:])
    else:
        matrices = numbers.array(name, distribution, given.shape).reshape(-1, *given.shape[-2:])
    if given.entry >= len(matrices):
        raise UserError(f"{key}.entry={given.entry}: shape={list(given.shape)} has {len(matrices)}, counted from 0")
    matrix = matrices[given.entry].astype(np.float64)
    if given.rows and max(given.rows) >= len(matrix):
        raise UserError(f"{key}.rows names row {max(given.rows)}; there are {len(matrix)}, counted from 0")
    return np.asarray(matrix[list(given.rows)] if given.rows else matrix)


def source_of(given: Draw, key: str, source: Numbers) -> Numbers:
    """Return where an array that a `Draw` describes comes from."""
    if given.legacy_seed is None:
        return own_source(given.generator, given.seed, f"{key}.seed", source, alone=not given.by_row)
    if given.seed is not None or given.generator not in (None, "legacy"):
        raise UserError(f"{key}.legacy_seed says generator and seed by itself; leave {key}.generator and seed out")
    return own_source("legacy", given.legacy_seed, f"{key}.legacy_seed", source)


def own_source(generator: str | None, seed: int | None, key: str, source: Numbers, alone: bool = True) -> Numbers:
    """Return where an array comes from: the run's numbers, or where it names another generator or a seed, its own."""
    name = source.generator if generator is None else generator
    if seed is None and name == source.generator:
        return source
    return begun(name, source.seed if seed is None else seed, "seed" if seed is None else key, alone)


def size(given: Draw) -> tuple[int, int]:
    """Return how many rows and columns an array will have."""
    return len(given.rows) or given.shape[-2], given.shape[-1]
