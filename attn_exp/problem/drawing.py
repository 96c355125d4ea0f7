"""Arrays given in the settings: written out, read from a file, or drawn at random.

Each random array has its own stream, or a library's generator draws them one after another, in a notebook's order.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array, Shape, draw
from attn_exp.config.inputs import STREAMS, Draw, Projections
from attn_exp.config.kinds import AT_LEAST_0, refuse
from attn_exp.errors import UserError, brief, shown

if TYPE_CHECKING:
    from attn_exp.problem.generators.generator import Stream

EXACT = 2**53
"""The largest magnitude up to which every integer is exact in float64."""


class Distribution(NamedTuple):
    """The distribution `spread * numbers + mean`, with bounds if uniform or integer; `key` prefixes its settings."""

    name: str
    low: float | None = None
    high: float | None = None
    spread: float = 1.0
    mean: float = 0.0
    key: str = ""

    def bounds(self, lowest: float = 0.0) -> tuple[float, float]:
        """Return the bounds: by default `lowest` and 1 for uniform numbers; integers start at 0 and need a `high`.

        Normal numbers have no bounds; ignore the result for them.

        Raises:
            UserError: bounds are missing, out of order, too far apart, or not whole for integers.
        """
        if self.name == "normal":
            return lowest, 1.0
        whole = self.name == "integers"
        if whole and self.high is None:
            raise UserError(f"{self.key}distribution=integers needs {self.key}high, the exclusive upper bound")
        low = (0.0 if whole else lowest) if self.low is None else self.low
        high = 1.0 if self.high is None else self.high
        exact = max(abs(low), abs(high)) <= EXACT and low == int(low) and high == int(high)
        if not low < high or math.isinf(high - low) or (whole and not exact):
            expected = "whole numbers up to 2^53, high above low" if whole else "high above low, by a finite amount"
            raise UserError(f"{self.key}low={low:g} and {self.key}high={high:g}: expected {expected}")
        return low, high


class Numbers(NamedTuple):
    """A source of random arrays: `stream` draws them in order; if it is None, each has its own stream, by name."""

    generator: str
    seed: int
    stream: Stream | None

    def array(self, name: str, distribution: Distribution, shape: Shape) -> Array:
        if self.stream is not None:
            return next_array(self.stream, distribution, shape)
        numbers = draw(self.seed, name, distribution.name, shape, distribution.bounds(-1.0))
        return distribution.spread * numbers + distribution.mean


def begun(generator: str, seed: int, key: str = "seed", alone: bool = False) -> Numbers:
    """Seed a source of random arrays; `alone` means that only one array is drawn.

    Raises:
        UserError: the generator is unknown, or does not accept the seed.
    """
    if generator == STREAMS:
        if seed < 0:
            refuse(seed, key, AT_LEAST_0)
        return Numbers(STREAMS, seed, None)
    from attn_exp.problem import generators  # noqa: PLC0415 - most runs draw each array from its own stream

    return Numbers(generator, seed, generators.begin(generator, seed, alone, key))


def next_array(stream: Stream, distribution: Distribution, shape: Shape) -> Array:
    """Draw the next array of a generator, scaled and shifted in the dtype in which its library draws."""
    low, high = distribution.bounds()
    if distribution.name == "normal":
        numbers = stream.normal(shape, 0.0, 1.0)
    elif distribution.name == "integers":
        numbers = stream.integers(shape, int(low), int(high))
    else:
        numbers = stream.uniform(shape, low, high)
    kind = numbers.dtype.type if numbers.dtype.kind == "f" else float
    return numbers * kind(distribution.spread) + kind(distribution.mean)


def array_or_drawn(given: Any, key: str, source: Numbers) -> Array:
    """Return the numbers of a setting as a float64 matrix: written out, in a file, or described by a `Draw`.

    Raises:
        UserError: as in `array` and `drawn`, or a file cannot be read.
    """
    if isinstance(given, Draw):
        return drawn(given, key, source)
    if not isinstance(given, str):
        return array(given, key)
    from attn_exp.problem.from_files import rows  # noqa: PLC0415 - most runs read no files

    return rows(given, key, array_name(key))


def array_name(key: str) -> str:
    last = key.rpartition(".")[2]
    return "x" if last == "vectors" else last


def drawn(given: Draw, key: str, source: Numbers) -> Array:
    """Draw the float64 matrix that a `Draw` describes.

    Raises:
        UserError: the generator or seed is invalid, or `entry` or `rows` is out of range.
    """
    distribution = Distribution(given.distribution, given.low, given.high, given.spread, given.mean, f"{key}.")
    name = array_name(key)
    numbers = own_source(*spell_seed(given, key), source, alone=not given.by_row)
    shape, calls = (given.shape[-1:], math.prod(given.shape[:-1])) if given.by_row else (given.shape, 1)
    matrices = np.stack([numbers.array(name, distribution, shape) for _ in range(calls)]).reshape(-1, *given.shape[-2:])
    if given.entry >= len(matrices):
        raise UserError(
            f"{key}.entry={given.entry}: entries start at 0, and shape={list(given.shape)} has only {len(matrices)}"
        )
    matrix = matrices[given.entry].astype(np.float64)
    if given.rows and max(given.rows) >= len(matrix):
        raise UserError(f"{key}.rows names row {max(given.rows)}; there are {len(matrix)} rows, counted from 0")
    return np.asarray(matrix[list(given.rows)] if given.rows else matrix)


def spell_seed(given: Draw | Projections, key: str) -> tuple[str | None, int | None, str]:
    """Return the generator, the seed, and the setting of that seed; `legacy_seed` sets both.

    Raises:
        UserError: `legacy_seed` is set together with a generator or a seed.
    """
    if given.legacy_seed is None:
        return given.generator, given.seed, f"{key}.seed"
    if given.seed is not None or given.generator not in (None, "legacy"):
        raise UserError(f"{key}.legacy_seed sets both generator and seed; leave out {key}.generator and seed")
    return "legacy", given.legacy_seed, f"{key}.legacy_seed"


def own_source(generator: str | None, seed: int | None, key: str, source: Numbers, alone: bool = True) -> Numbers:
    name = source.generator if generator is None else generator
    if seed is None and name == source.generator:
        return source
    return begun(name, source.seed if seed is None else seed, "seed" if seed is None else key, alone)


def size(given: Draw) -> tuple[int, int]:
    return len(given.rows) or given.shape[-2], given.shape[-1]


def array(given: Any, key: str) -> Array:
    if isinstance(given, np.ndarray) and given.ndim == 2 and given.size and given.dtype.kind in "iuf":
        return finite(given.astype(np.float64), key)
    if not isinstance(given, (list, tuple)) or not given or not all(isinstance(row, (list, tuple)) for row in given):
        raise UserError(f"{key}={brief(shown(given))}: expected a list of rows, such as [[1,0],[0,1]]")
    widths = [len(row) for row in given]
    if len(set(widths)) > 1:
        raise UserError(f"{key} is ragged: rows of {brief(', '.join(map(str, widths)))} numbers")
    if widths[0] == 0:
        raise UserError(f"{key} is empty: expected at least one number in each row")
    for place, row in enumerate(given):
        for entry in row:
            if isinstance(entry, bool) or not isinstance(entry, (int, float)):
                batch = "; a run takes one sequence of a batch, and -m runs several"
                hint = f", a list, which is not a number{batch}" if isinstance(entry, (list, tuple)) else ""
                said = brief(repr(entry) if isinstance(entry, str) else shown(entry), 40)
                raise UserError(f"{key}: row {place} holds {said}{hint or ', which is not a number'}")
    try:
        return finite(np.array(given, dtype=np.float64), key)
    except OverflowError:
        raise UserError(f"{key} holds a number beyond 1.8e308, the largest 64-bit float") from None


PRINTED = re.compile(r"\s*(?:\w+\()?\[")
"""The beginning of a matrix printed by NumPy or PyTorch, perhaps as array([[...]]) or tensor([[...]])."""


def as_printed(text: str, key: str) -> Array:
    """Parse a matrix as NumPy or PyTorch prints it: a pair of brackets for each row, with or without commas.

    Raises:
        UserError: the text is not a matrix of numbers; the message says where.
    """
    rows = [row.replace(",", " ").split() for row in re.findall(r"\[([^\[\]]*)\]", text)]
    return array([[float(cell) if NUMBER.fullmatch(cell) else cell for cell in row] for row in rows], key)


NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?(inf|nan)", re.IGNORECASE)


def is_plain(given: Any) -> bool:
    """Return whether a setting is one list of rows or a `Draw`, not a file or a list of rows per head."""
    inner = given
    for _ in range(2):
        inner = inner[0] if isinstance(inner, (list, tuple)) and inner else None
    return not isinstance(given, str) and not isinstance(inner, (list, tuple))


def finite(array: Array, key: str) -> Array:
    if not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))
        place = f"row {bad[0][0]}, column {bad[0][1]}" if array.ndim == 2 else f"[{','.join(map(str, bad[0]))}]"
        raise UserError(f"{key}: {place} holds {array[tuple(bad[0])]}; expected finite numbers")
    return array
