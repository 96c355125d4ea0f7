"""Arrays given in the settings: written out, read from a file, or drawn at random.

By default, each random array has its own stream. If the settings name a library's generator, it draws all arrays one
after another, in the order of the notebook.
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
    """A random distribution: `spread * numbers + mean`.

    - `name`: the distribution of `numbers`: "normal", "uniform" or "integers".
    - `low`, `high`: the bounds of uniform numbers and of integers; None means the default in `bounds`.
    - `key`: the prefix of the settings in error messages, such as `projections.`.
    """

    name: str
    low: float | None = None
    high: float | None = None
    spread: float = 1.0
    mean: float = 0.0
    key: str = ""

    def bounds(self, lowest: float = 0.0) -> tuple[float, float]:
        """Return the lower and the upper bound of the numbers.

        By default, uniform numbers lie between `lowest` and 1. Integers start at 0 by default, and need a `high`.
        Normal numbers have no bounds: ignore the result for them.

        Raises:
            UserError: bounds are missing, out of order, too far apart, or not whole for integers.
        """
        if self.name == "normal":
            return lowest, 1.0
        are_integers = self.name == "integers"
        if are_integers and self.high is None:
            raise UserError(f"{self.key}distribution=integers needs {self.key}high, the exclusive upper bound")
        low = (0.0 if are_integers else lowest) if self.low is None else self.low
        high = 1.0 if self.high is None else self.high
        are_exact = max(abs(low), abs(high)) <= EXACT and low == int(low) and high == int(high)
        if not low < high or math.isinf(high - low) or (are_integers and not are_exact):
            expected = (
                "whole numbers up to 2^53, high above low" if are_integers else "high above low, by a finite amount"
            )
            raise UserError(f"{self.key}low={low:g} and {self.key}high={high:g}: expected {expected}")
        return low, high


class RandomSource(NamedTuple):
    """A source of random arrays.

    - `generator`, `seed`: the settings that chose it. An array that sets neither is drawn from this source.
    - `stream`: draws the arrays one after another. If it is None, each array has its own stream, named after it.
    """

    generator: str
    seed: int
    stream: Stream | None

    def array(self, name: str, distribution: Distribution, shape: Shape) -> Array:
        if self.stream is not None:
            return next_array(self.stream, distribution, shape)
        numbers = draw(self.seed, name, distribution.name, shape, distribution.bounds(-1.0))
        return distribution.spread * numbers + distribution.mean


def seed_source(generator: str, seed: int, key: str = "seed", draws_once: bool = False) -> RandomSource:
    """Seed a source of random arrays; `draws_once` means that only one array is drawn.

    Raises:
        UserError: the generator is unknown, or does not accept the seed.
    """
    if generator == STREAMS:
        if seed < 0:
            refuse(seed, key, AT_LEAST_0)
        return RandomSource(STREAMS, seed, None)
    from attn_exp.problem import generators  # noqa: PLC0415 - most runs draw each array from its own stream

    return RandomSource(generator, seed, generators.begin(generator, seed, draws_once, key))


def next_array(stream: Stream, distribution: Distribution, shape: Shape) -> Array:
    """Draw the next array of a generator, scaled and shifted in the dtype in which its library draws."""
    low, high = distribution.bounds()
    if distribution.name == "normal":
        numbers = stream.normal(shape, 0.0, 1.0)
    elif distribution.name == "integers":
        numbers = stream.integers(shape, int(low), int(high))
    else:
        numbers = stream.uniform(shape, low, high)
    scalar_type = numbers.dtype.type if numbers.dtype.kind == "f" else float
    return numbers * scalar_type(distribution.spread) + scalar_type(distribution.mean)


def read_matrix(value: Any, key: str, source: RandomSource) -> Array:
    """Return the float64 matrix of a setting: written out, read from a file, or drawn as a `Draw` describes.

    Raises:
        UserError: as in `parse_matrix` and `draw_matrix`, or a file cannot be read.
    """
    if isinstance(value, Draw):
        return draw_matrix(value, key, source)
    if not isinstance(value, str):
        return parse_matrix(value, key)
    from attn_exp.problem.from_files import read_matrix_file  # noqa: PLC0415 - most runs read no files

    return read_matrix_file(value, key, array_name(key))


def array_name(key: str) -> str:
    last = key.rpartition(".")[2]
    return "x" if last == "vectors" else last


def draw_matrix(settings: Draw, key: str, source: RandomSource) -> Array:
    """Draw the float64 matrix that a `Draw` describes.

    Raises:
        UserError: the generator or seed is invalid, or `entry` or `rows` is out of range.
    """
    distribution = Distribution(
        settings.distribution, settings.low, settings.high, settings.spread, settings.mean, f"{key}."
    )
    name = array_name(key)
    # with `by_row`, each row is drawn by a separate call
    generator = choose_source(*find_seed(settings, key), source, draws_once=not settings.by_row)
    shape, calls = (settings.shape[-1:], math.prod(settings.shape[:-1])) if settings.by_row else (settings.shape, 1)
    matrices = np.stack([generator.array(name, distribution, shape) for _ in range(calls)]).reshape(
        -1, *settings.shape[-2:]
    )
    if settings.entry >= len(matrices):
        raise UserError(
            f"{key}.entry={settings.entry}: entries start at 0, "
            f"and shape={list(settings.shape)} has only {len(matrices)}"
        )
    matrix = matrices[settings.entry].astype(np.float64)
    if settings.rows and max(settings.rows) >= len(matrix):
        raise UserError(f"{key}.rows names row {max(settings.rows)}; there are {len(matrix)} rows, counted from 0")
    return np.asarray(matrix[list(settings.rows)] if settings.rows else matrix)


def find_seed(settings: Draw | Projections, key: str) -> tuple[str | None, int | None, str]:
    """Return the generator, the seed, and the name of the setting that gave the seed.

    The setting `legacy_seed` gives both generator and seed.

    Raises:
        UserError: `legacy_seed` is set together with a generator or a seed.
    """
    if settings.legacy_seed is None:
        return settings.generator, settings.seed, f"{key}.seed"
    if settings.seed is not None or settings.generator not in (None, "legacy"):
        raise UserError(f"{key}.legacy_seed sets both generator and seed; leave out {key}.generator and seed")
    return "legacy", settings.legacy_seed, f"{key}.legacy_seed"


def choose_source(
    generator: str | None, seed: int | None, key: str, source: RandomSource, draws_once: bool = True
) -> RandomSource:
    """Return `source`, or a new source if an array has its own seed or generator."""
    name = source.generator if generator is None else generator
    if seed is None and name == source.generator:
        return source
    return seed_source(name, source.seed if seed is None else seed, "seed" if seed is None else key, draws_once)


def drawn_shape(settings: Draw) -> tuple[int, int]:
    return len(settings.rows) or settings.shape[-2], settings.shape[-1]


def parse_matrix(value: Any, key: str) -> Array:
    if isinstance(value, np.ndarray) and value.ndim == 2 and value.size and value.dtype.kind in "iuf":
        return require_finite(value.astype(np.float64), key)
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(row, (list, tuple)) for row in value):
        raise UserError(f"{key}={brief(shown(value))}: expected a list of rows, such as [[1,0],[0,1]]")
    widths = [len(row) for row in value]
    if len(set(widths)) > 1:
        raise UserError(f"{key} is ragged: rows of {brief(', '.join(map(str, widths)))} numbers")
    if widths[0] == 0:
        raise UserError(f"{key} is empty: expected at least one number in each row")
    for row_index, row in enumerate(value):
        for entry in row:
            if isinstance(entry, bool) or not isinstance(entry, (int, float)):
                shown_entry = brief(repr(entry) if isinstance(entry, str) else shown(entry), 40)
                hint = (
                    ", a list instead of a number; a run takes one sequence of a batch, and -m runs several"
                    if isinstance(entry, (list, tuple))
                    else ", which is not a number"
                )
                raise UserError(f"{key}: row {row_index} holds {shown_entry}{hint}")
    try:
        return require_finite(np.array(value, dtype=np.float64), key)
    except OverflowError:
        raise UserError(f"{key} holds a number beyond 1.8e308, the largest 64-bit float") from None


PRINTED = re.compile(r"\s*(?:\w+\()?\[")
"""The beginning of a matrix printed by NumPy or PyTorch, perhaps as array([[...]]) or tensor([[...]])."""


def parse_printed(text: str, key: str) -> Array:
    """Parse a matrix that NumPy or PyTorch printed, such as `[[1. 2.] [3. 4.]]`, with or without commas.

    Raises:
        UserError: the text is not a matrix of numbers; the message says where.
    """
    rows = [row.replace(",", " ").split() for row in re.findall(r"\[([^\[\]]*)\]", text)]
    return parse_matrix([[float(cell) if NUMBER.fullmatch(cell) else cell for cell in row] for row in rows], key)


NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?(inf|nan)", re.IGNORECASE)


def is_plain(value: Any) -> bool:
    """Return whether a setting is a single array, written out or drawn; a file or one matrix per head is not."""
    nested = value
    for _ in range(2):  # one matrix per head has a third level of lists
        nested = nested[0] if isinstance(nested, (list, tuple)) and nested else None
    return not isinstance(value, str) and not isinstance(nested, (list, tuple))


def require_finite(array: Array, key: str) -> Array:
    if not np.isfinite(array).all():
        indices = np.argwhere(~np.isfinite(array))
        position = (
            f"row {indices[0][0]}, column {indices[0][1]}" if array.ndim == 2 else f"[{','.join(map(str, indices[0]))}]"
        )
        raise UserError(f"{key}: {position} holds {array[tuple(indices[0])]}; expected finite numbers")
    return array
