"""Projections drawn one after another, in the order in which a notebook makes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.inputs import DISTRIBUTIONS, STREAMS, Projections
from attn_exp.errors import UserError, unknown
from attn_exp.problem import torch_layers
from attn_exp.problem.drawing import Kind, Numbers, begun, next_array
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
        return multi_head(settings, stream, inputs, bias)
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
        for place, name in enumerate(names):
            if name not in MATRICES + BIASES:
                raise UserError(unknown(name, MATRICES + BIASES, "array of projections"))
            yield name, head if place < len(settings.order_per_head) * head else 1
    elif settings.legacy_seed is None:
        pairs = [name for pair in zip(MATRICES, BIASES, strict=True) for name in pair]
        default = pairs if settings.source == "torch_linear" else (MATRICES + BIASES)
        makes = settings.source in (*DISTRIBUTIONS, "torch_linear")
        for name in default:
            if makes and name not in known and (bias or name in MATRICES):
                yield name, 1


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
        layer = torch_layers.bias if name in BIASES else torch_layers.weight
        return np.atleast_2d(layer(stream, rows, columns)).astype(np.float64)
    distribution = settings.distribution or (settings.source if settings.source in DISTRIBUTIONS else "normal")
    spread = 1.0 if settings.spread is None else settings.spread
    kind = Kind(distribution, settings.low, settings.high, spread, key="projections.")
    size = (1 if name in BIASES else rows, columns)
    array = next_array(stream, kind, size[::-1] if settings.columns else size)
    return (array.T if settings.columns else array).astype(np.float64)


def multi_head(settings: Projections, stream: Stream, inputs: Widths, bias: bool) -> dict[str, Array]:
    """Return the arrays of a new `nn.MultiheadAttention`, biases as one row; `kdim` and `vdim` are a memory's width."""
    sizes = (settings.width, settings.key_width, settings.value_width, settings.output_width)
    if any(size not in (None, inputs.x) for size in sizes) or settings.order or settings.order_per_head:
        raise UserError("projections.source=torch_mha has the sizes and the order of nn.MultiheadAttention; set none")
    arrays = torch_layers.multi_head_attention(stream, inputs.x, bias, inputs.source)
    return {name: np.atleast_2d(array).astype(np.float64) for name, array in arrays.items()}
