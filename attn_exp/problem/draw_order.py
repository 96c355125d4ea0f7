"""Projections drawn one after another, in the order in which a notebook makes them; and those of PyTorch's new layers.

A layer of PyTorch makes its calls of the generator in an order of its own. A `Linear` stores its weight `[outputs
inputs]` and computes `x W^T + b`; what is returned here is turned, `[inputs outputs]`, as the projections of a run
have it.

Source: PyTorch, `torch/nn/init.py`, `torch/nn/modules/linear.py` and `activation.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.inputs import DISTRIBUTIONS, STREAMS, Projections
from attn_exp.errors import UserError, unknown
from attn_exp.problem.drawing import Distribution, Numbers, begun, next_array
from attn_exp.problem.matrices import BIASES, MATRICES, Widths, check_divides, grouped

if TYPE_CHECKING:
    from attn_exp.problem.generators.generator import Stream

LAYERS = ("torch_linear", "torch_mha")
"""Sources that are new layers of PyTorch."""


def ordered(
    settings: Projections, known: Mapping[str, Array], inputs: Widths, head: int, bias: bool, source: Numbers
) -> dict[str, Array]:
    """Return the arrays that a generator draws one after another: first each head's, then those of the whole.

    Nothing where no generator is named. Without an order it is W_q, W_k, W_v, W_o, then the biases if there are any;
    a new `nn.Linear` draws its bias right after its matrix. What is `known` already is not drawn.

    Raises:
        UserError: an unknown name, a generator or seed that does not fit, or widths that heads do not divide.
    """
    stream = stream_of(settings, source)
    if stream is None:
        return {}
    if settings.source == "torch_mha":
        return arrays_of_mha(settings, stream, inputs, bias)
    parts: dict[str, list[Array]] = {}
    for name, heads in calls(settings, known, bias, head):
        rows, columns = shape(settings, known, name, inputs, (head, heads))
        parts.setdefault(name, []).append(one(settings, stream, name, rows, columns))
    return {name: np.hstack(arrays) for name, arrays in parts.items()}


def stream_of(settings: Projections, source: Numbers) -> Stream | None:
    """Return the generator that draws the projections: one of their own, or the run's; None where each has a stream."""
    if settings.legacy_seed is not None:
        if settings.seed is not None or settings.generator not in (None, "legacy"):
            raise UserError("projections.legacy_seed says generator and seed by itself; leave those two out")
        return begun("legacy", settings.legacy_seed, "projections.legacy_seed").stream
    if settings.source in LAYERS and settings.generator not in (None, "torch"):
        raise UserError(f"projections.generator={settings.generator}: {settings.source} is drawn by torch alone")
    named = "torch" if settings.source in LAYERS else settings.generator or source.generator
    if named == STREAMS:
        if settings.seed is not None:
            raise UserError(f"projections.seed={settings.seed} needs projections.generator, such as torch")
        if settings.order or settings.order_per_head:
            raise UserError("projections.order needs projections.generator, such as torch: each array has its own seed")
        return None
    if settings.seed is None and named == source.generator:
        return source.stream
    if settings.seed is None:
        return begun(named, source.seed).stream
    return begun(named, settings.seed, "projections.seed").stream


def calls(settings: Projections, known: Mapping[str, Array], bias: bool, head: int) -> Iterator[tuple[str, int]]:
    """Yield the arrays in the order of their calls, and among how many heads each is shared."""
    if settings.order_per_head or settings.order:
        names = settings.order_per_head * head + settings.order
        check_whole(names, known)
        for place, name in enumerate(names):
            yield name, head if place < len(settings.order_per_head) * head else 1
    elif settings.legacy_seed is None:
        pairs = [name for pair in zip(MATRICES, BIASES, strict=True) for name in pair]
        default = pairs if settings.source == "torch_linear" else (MATRICES + BIASES)
        makes = settings.source in (*DISTRIBUTIONS, "torch_linear")
        for name in default:
            if makes and name not in known and (bias or name in MATRICES):
                yield name, 1


def check_whole(names: Sequence[str], known: Mapping[str, Array]) -> None:
    """Refuse an order that leaves out a matrix every run needs; W_o and biases are not drawn where it has none.

    Raises:
        UserError: an unknown name, or W_q, W_k or W_v is neither in the order nor known already.
    """
    for name in names:
        if name not in MATRICES + BIASES:
            raise UserError(unknown(name, MATRICES + BIASES, "array of projections"))
    left = [name for name in MATRICES[:3] if name not in names and name not in known]
    if left:
        raise UserError(
            f"projections.order leaves out {' and '.join(left)}; name every matrix that is to be drawn, "
            f"such as [{','.join(MATRICES[:3])}]"
        )


def shape(
    settings: Projections, known: Mapping[str, Array], name: str, inputs: Widths, heads: tuple[int, int]
) -> tuple[int, int]:
    """Return the rows and columns of one call's matrix, or of the matrix that its bias goes with.

    `heads` are how many there are, and among how many of them this array is shared.
    """
    width = widths(settings, inputs.x) | {name[-1]: array.shape[1] for name, array in known.items() if name in MATRICES}
    columns = width[name[-1]]
    check_divides(heads[1], columns, "d_model" if columns == inputs.x else f"the columns of {name}")
    rows = width["v"] * grouped(width["q"], width["k"], heads[0]) if name[-1] == "o" else inputs.of(name)
    return rows, columns // heads[1]


def widths(settings: Projections, d_model: int) -> dict[str, int]:
    """Return the columns of W_q, W_k, W_v and W_o, by their letter."""
    query = d_model if settings.width is None else settings.width
    key = query if settings.key_width is None else settings.key_width
    value = key if settings.value_width is None else settings.value_width
    output = d_model if settings.output_width is None else settings.output_width
    return {"q": query, "k": key, "v": value, "o": output}


def one(settings: Projections, stream: Stream, name: str, rows: int, columns: int) -> Array:
    """Draw one array, a bias as one row; a document with tokens in columns draws it turned."""
    if settings.source == "torch_linear":
        layer = bias_of_linear if name in BIASES else weight_of_linear
        return np.atleast_2d(layer(stream, rows, columns)).astype(np.float64)
    named = settings.distribution or (settings.source if settings.source in DISTRIBUTIONS else "normal")
    spread = 1.0 if settings.spread is None else settings.spread
    distribution = Distribution(named, settings.low, settings.high, spread, key="projections.")
    size = (1 if name in BIASES else rows, columns)
    array = next_array(stream, distribution, size[::-1] if settings.columns else size)
    return (array.T if settings.columns else array).astype(np.float64)


def arrays_of_mha(settings: Projections, stream: Stream, inputs: Widths, bias: bool) -> dict[str, Array]:
    """Return the arrays of a new `nn.MultiheadAttention`, biases as one row; `kdim` and `vdim` are a memory's width."""
    sizes = (settings.width, settings.key_width, settings.value_width, settings.output_width)
    if any(size not in (None, inputs.x) for size in sizes) or settings.order or settings.order_per_head:
        raise UserError("projections.source=torch_mha has the sizes and the order of nn.MultiheadAttention; set none")
    arrays = multi_head_attention(stream, inputs.x, bias, inputs.source)
    return {name: np.atleast_2d(array).astype(np.float64) for name, array in arrays.items()}


def weight_of_linear(stream: Stream, inputs: int, outputs: int) -> Array:
    """Return the matrix `[inputs outputs]` of a new `nn.Linear(inputs, outputs)`: uniform within `1 / sqrt(inputs)`."""
    spread = math.sqrt(2 / (1 + math.sqrt(5) ** 2)) / math.sqrt(inputs)  # the gain of a leaky ReLU of slope sqrt(5)
    return stream.uniform((outputs, inputs), -math.sqrt(3) * spread, math.sqrt(3) * spread).T


def bias_of_linear(stream: Stream, inputs: int, outputs: int) -> Array:
    """Return the bias `[outputs]` of a new `nn.Linear(inputs, outputs)`, drawn right after its matrix."""
    return stream.uniform((outputs,), -1 / math.sqrt(inputs), 1 / math.sqrt(inputs))


def multi_head_attention(stream: Stream, size: int, biases: bool, source: int | None = None) -> dict[str, Array]:
    """Return the projections of a new `nn.MultiheadAttention(size, heads, bias=biases)`.

    Its output projection is drawn first, as any `Linear`; then one matrix `[3 size, size]` of queries, keys and
    values, uniform within `sqrt(6 / (size + 3 size))`. Every bias is zero, that of the output too, though it is drawn.
    With keys and values of another size, `kdim=source, vdim=source`, the three are drawn one after another.
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
