"""Arrays drawn at random: each from a stream of its own, or one after another by a library's generator.

Projections are drawn in the order in which a notebook makes them, or as PyTorch initializes new layers, whose calls of
the generator have an order of their own. A `Linear` stores its weight `[outputs inputs]` and computes `x W^T + b`; the
arrays returned here are transposed, `[inputs outputs]`, as the projections of a run.

Source: PyTorch, `torch/nn/init.py`, `torch/nn/modules/linear.py` and `activation.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array, draw
from attn_exp.config.inputs import DISTRIBUTIONS, STREAMS, Draw, Projections
from attn_exp.config.kinds import AT_LEAST_0, refuse
from attn_exp.errors import UserError, unknown
from attn_exp.problem.matrices import BIASES, MATRICES, Inputs, array, check_divides, grouped

if TYPE_CHECKING:
    from attn_exp.problem.generators.generator import Stream

Shape = tuple[int, ...]


EXACT = 2**53
"""The largest magnitude up to which every integer is a float64."""


class Distribution(NamedTuple):
    """The distribution `spread * numbers + mean`, with bounds for uniform numbers and integers; `key` is its prefix."""

    name: str
    low: float | None = None
    high: float | None = None
    spread: float = 1.0
    mean: float = 0.0
    key: str = ""

    def bounds(self, lowest: float = 0.0) -> tuple[float, float]:
        """Return the bounds: by default from 0, or `lowest` for uniform numbers, to 1; integers need an upper bound.

        Normal numbers have none, and ignore the result.

        Raises:
            UserError: bounds are missing, out of order, too far apart, or not whole for integers.
        """
        if self.name == "normal":
            return lowest, 1.0
        whole = self.name == "integers"
        if whole and self.high is None:
            raise UserError(f"{self.key}distribution=integers needs {self.key}high, the number that they stay below")
        low = (0.0 if whole else lowest) if self.low is None else self.low
        high = 1.0 if self.high is None else self.high
        exact = max(abs(low), abs(high)) <= EXACT and low == int(low) and high == int(high)
        if not low < high or math.isinf(high - low) or (whole and not exact):
            expected = "whole numbers up to 2^53, high above low" if whole else "high above low, and not infinitely far"
            raise UserError(f"{self.key}low={low:g} and {self.key}high={high:g}: expected {expected}")
        return low, high


class Numbers(NamedTuple):
    """The random arrays of a run: the next of a stream, or without one, each from its own by name."""

    generator: str
    seed: int
    stream: Stream | None

    def array(self, name: str, distribution: Distribution, shape: Shape) -> Array:
        if self.stream is not None:
            return next_array(self.stream, distribution, shape)
        numbers = draw(self.seed, name, distribution.name, shape, distribution.bounds(-1.0))
        return distribution.spread * numbers + distribution.mean


def begun(generator: str, seed: int, key: str = "seed", alone: bool = False) -> Numbers:
    """Seed the random arrays; `alone` means that only one array is drawn.

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
    """Draw the next array of a generator, scaled and shifted in the dtype in which its library draws."""
    low, high = distribution.bounds()
    if distribution.name == "normal":
        numbers = stream.normal(shape, 0.0, 1.0)
    elif distribution.name == "integers":
        numbers = stream.integers(shape, int(low), int(high))
    else:
        numbers = stream.uniform(shape, low, high)
    kind = numbers.dtype.type if numbers.dtype.kind == "f" else float
    return np.asarray(numbers * kind(distribution.spread) + kind(distribution.mean))


def array_or_drawn(given: Any, key: str, source: Numbers) -> Array:
    """Return the numbers of a setting as a float64 matrix: written out, in a file, or described by a `Draw`.

    Raises:
        UserError: as `array` and `drawn`, or a file that cannot be read.
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
        UserError: a generator or seed that does not fit, or an entry or row beyond the shape.
    """
    distribution = Distribution(given.distribution, given.low, given.high, given.spread, given.mean, f"{key}.")
    name = array_name(key)
    numbers = own_source(*spell_seed(given, key), source, alone=not given.by_row)
    shape, calls = (given.shape[-1:], math.prod(given.shape[:-1])) if given.by_row else (given.shape, 1)
    arrays = np.stack([numbers.array(name, distribution, shape) for _ in range(calls)])
    matrices = arrays.reshape(-1, *given.shape[-2:])
    if given.entry >= len(matrices):
        raise UserError(f"{key}.entry={given.entry}: shape={list(given.shape)} has {len(matrices)}, counted from 0")
    matrix = matrices[given.entry].astype(np.float64)
    if given.rows and max(given.rows) >= len(matrix):
        raise UserError(f"{key}.rows names row {max(given.rows)}; there are {len(matrix)}, counted from 0")
    return np.asarray(matrix[list(given.rows)] if given.rows else matrix)


def spell_seed(given: Draw | Projections, key: str) -> tuple[str | None, int | None, str]:
    """Return the generator, the seed, and the setting of that seed; `legacy_seed` sets both.

    Raises:
        UserError: it is set beside another generator or seed.
    """
    if given.legacy_seed is None:
        return given.generator, given.seed, f"{key}.seed"
    if given.seed is not None or given.generator not in (None, "legacy"):
        raise UserError(f"{key}.legacy_seed says generator and seed by itself; leave {key}.generator and seed out")
    return "legacy", given.legacy_seed, f"{key}.legacy_seed"


def own_source(generator: str | None, seed: int | None, key: str, source: Numbers, alone: bool = True) -> Numbers:
    name = source.generator if generator is None else generator
    if seed is None and name == source.generator:
        return source
    return begun(name, source.seed if seed is None else seed, "seed" if seed is None else key, alone)


def size(given: Draw) -> tuple[int, int]:
    return len(given.rows) or given.shape[-2], given.shape[-1]


LAYERS = ("torch_linear", "torch_mha")
"""Sources that initialize a new layer of PyTorch."""


def ordered(
    settings: Projections, known: Mapping[str, Array], inputs: Inputs, head: int, bias: bool, source: Numbers
) -> dict[str, Array]:
    """Return the arrays that a generator draws one after another: first each head's, then the shared ones.

    Empty if no generator is named. The default order is W_q, W_k, W_v, W_o, then the biases, if any; a new `nn.Linear`
    draws its bias right after its matrix. `known` arrays are not drawn.

    Raises:
        UserError: an unknown name, a generator or seed that does not fit, or widths that heads do not divide.
    """
    stream = find_stream(settings, source)
    if stream is None:
        return {}
    if settings.source == "torch_mha":
        sizes = (settings.width, settings.key_width, settings.value_width, settings.output_width)
        if any(size not in (None, inputs.width()) for size in sizes) or settings.order or settings.order_per_head:
            raise UserError(
                "projections.source=torch_mha has the sizes and the order of nn.MultiheadAttention; set none"
            )
        arrays = multi_head_attention(stream, inputs.width(), bias, inputs.width("W_k"))
        return {name: np.atleast_2d(array).astype(np.float64) for name, array in arrays.items()}
    parts: dict[str, list[Array]] = {}
    for name, heads in calls(settings, known, bias, head):
        rows, columns = shape_of_call(settings, known, name, inputs, (head, heads))
        parts.setdefault(name, []).append(draw_next(settings, stream, name, rows, columns))
    return {name: np.hstack(arrays) for name, arrays in parts.items()}


def find_stream(settings: Projections, source: Numbers) -> Stream | None:
    """Return the generator of the projections, their own or the run's; None if each has a stream by name."""
    generator, seed, key = spell_seed(settings, "projections")
    if settings.source in LAYERS:
        if generator not in (None, "torch"):
            raise UserError(f"projections.generator={generator}: {settings.source} is drawn by torch alone")
        generator = "torch"
    if (generator or source.generator) != STREAMS:
        return own_source(generator, seed, key, source, alone=False).stream
    if seed is not None:
        raise UserError(f"{key}={seed} needs projections.generator, such as torch")
    if settings.order or settings.order_per_head:
        raise UserError("projections.order needs projections.generator, such as torch: each array has its own seed")
    return None


def calls(settings: Projections, known: Mapping[str, Array], bias: bool, head: int) -> Iterator[tuple[str, int]]:
    """Yield the arrays in the order of their calls, and the number of heads that each is split into.

    Raises:
        UserError: an unknown name, or an order without a W_q, W_k or W_v that nothing else gives.
    """
    if settings.order_per_head or settings.order:
        names = settings.order_per_head * head + settings.order
        for name in names:
            if name not in MATRICES + BIASES:
                raise UserError(unknown(name, MATRICES + BIASES, "array of projections"))
        left = [name for name in MATRICES[:3] if name not in names and name not in known]
        if left:
            raise UserError(
                f"projections.order leaves out {' and '.join(left)}; name every matrix that is to be drawn, "
                f"such as [{','.join(MATRICES[:3])}]"
            )
        for place, name in enumerate(names):
            yield name, head if place < len(settings.order_per_head) * head else 1
    elif settings.legacy_seed is None and settings.source in (*DISTRIBUTIONS, "torch_linear"):
        pairs = [name for pair in zip(MATRICES, BIASES, strict=True) for name in pair]
        default = pairs if settings.source == "torch_linear" else (MATRICES + BIASES)
        yield from ((name, 1) for name in default if name not in known and (bias or name in MATRICES))


def shape_of_call(
    settings: Projections, known: Mapping[str, Array], name: str, inputs: Inputs, heads: tuple[int, int]
) -> tuple[int, int]:
    """Return the shape of one call's matrix, or of the matrix that its bias belongs to.

    `heads` is the number of heads, and the number that this array is split into.
    """
    given = {name[-1]: array.shape[1] for name, array in known.items() if name in MATRICES}
    width = widths(settings, inputs.width()) | given
    columns = width[name[-1]]
    check_divides(heads[1], columns, "d_model" if columns == inputs.width() else f"the columns of {name}")
    rows = width["v"] * grouped(width["q"], width["k"], heads[0]) if name[-1] == "o" else inputs.width(name)
    return rows, columns // heads[1]


def widths(settings: Projections, d_model: int) -> dict[str, int]:
    """Return the columns of W_q, W_k, W_v and W_o, by their letter."""
    query = settings.width or d_model
    key = settings.key_width or query
    return {"q": query, "k": key, "v": settings.value_width or key, "o": settings.output_width or d_model}


def draw_next(settings: Projections, stream: Stream, name: str, rows: int, columns: int) -> Array:
    if settings.source == "torch_linear":
        layer = bias_of_linear if name in BIASES else weight_of_linear
        return np.atleast_2d(layer(stream, rows, columns)).astype(np.float64)
    named = settings.distribution or (settings.source if settings.source in DISTRIBUTIONS else "normal")
    spread = 1.0 if settings.spread is None else settings.spread
    distribution = Distribution(named, settings.low, settings.high, spread, key="projections.")
    size = (1 if name in BIASES else rows, columns)
    array = next_array(stream, distribution, size[::-1] if settings.columns else size)
    return (array.T if settings.columns else array).astype(np.float64)


def weight_of_linear(stream: Stream, inputs: int, outputs: int) -> Array:
    """Draw the weight of a new `nn.Linear`, uniform within `1 / sqrt(inputs)`, as `[inputs outputs]`."""
    spread = math.sqrt(2 / (1 + math.sqrt(5) ** 2)) / math.sqrt(inputs)  # the gain of a leaky ReLU with slope sqrt(5)
    return stream.uniform((outputs, inputs), -math.sqrt(3) * spread, math.sqrt(3) * spread).T


def bias_of_linear(stream: Stream, inputs: int, outputs: int) -> Array:
    """Draw the bias `[outputs]` of a new `nn.Linear`, which follows its weight."""
    return stream.uniform((outputs,), -1 / math.sqrt(inputs), 1 / math.sqrt(inputs))


def multi_head_attention(stream: Stream, size: int, biases: bool, source: int | None = None) -> dict[str, Array]:
    """Draw the projections of a new `nn.MultiheadAttention(size, heads, bias=biases)`.

    Its output projection is drawn first, as any `Linear`; then one matrix `[3 size, size]` of queries, keys and
    values, uniform within `sqrt(6 / (size + 3 size))`. Every bias is zero, even the output's, which is drawn too.
    If keys and values have another size, `kdim=source, vdim=source`, the three are drawn one after another.
    """
    output = weight_of_linear(stream, size, size)
    if biases:
        bias_of_linear(stream, size, size)
    together = source in (None, size)
    shapes = [(3 * size, size)] if together else [(size, inputs) for inputs in (size, source or 0, source or 0)]
    within = [math.sqrt(3) * math.sqrt(2 / sum(shape)) for shape in shapes]
    drawn = [stream.uniform(shape, -most, most) for shape, most in zip(shapes, within, strict=True)]
    sides = np.split(drawn[0], 3) if together else drawn
    zeros = {f"b_{letter}": np.zeros(size, np.float32) for letter in "qkvo"} if biases else {}
    return {f"W_{letter}": side.T for letter, side in zip("qkv", sides, strict=True)} | {"W_o": output} | zeros
