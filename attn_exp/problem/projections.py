"""The matrices and biases that turn x into queries, keys and values, and heads into the output.

`project` makes each array in the first of these ways that the settings allow:

1. The settings define it: written out, in a file, or as a printed product (`read_document`).
2. The setting `draws` draws it.
3. A generator draws several arrays one after another (`draw_in_order`), in the order in which a notebook creates them,
   or in which PyTorch initializes a new layer.
4. It is drawn from its own random stream, or is the identity or zeros (`make_array`).

PyTorch's `Linear` stores its weight `[outputs inputs]` and computes `x W^T + b`. The arrays here are transposed,
`[inputs outputs]`.

Source: PyTorch, `torch/nn/init.py`, `torch/nn/modules/linear.py` and `activation.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array, Arrays
from attn_exp.config.inputs import DISTRIBUTIONS, STREAMS, Projections
from attn_exp.errors import UserError, unknown
from attn_exp.problem.drawing import (
    Distribution,
    RandomSource,
    choose_source,
    find_seed,
    is_plain,
    next_array,
    read_matrix,
)

if TYPE_CHECKING:
    from attn_exp.problem.generators.generator import Stream

MATRICES = ("W_q", "W_k", "W_v", "W_o")
BIASES = ("b_q", "b_k", "b_v", "b_o")
LAYERS = ("torch_linear", "torch_mha")
"""Sources that initialize arrays like a new PyTorch layer."""


class Inputs(NamedTuple):
    """The inputs of the projections.

    - `x`: the vectors `[t m]` that W_q projects.
    - `key_source`: the vectors `[s n]` that W_k and W_v project: x, or the memory if there is one.
    """

    x: Array
    key_source: Array

    def of(self, name: str) -> Array:
        """Return the input of a matrix, or of the matrix that a bias belongs to."""
        return self.key_source if name[-1] in "kv" else self.x

    def width(self, name: str = "x") -> int:
        return int(self.of(name).shape[1])


def project(
    settings: Projections, inputs: Inputs, head: int, bias: bool, random_source: RandomSource, drawn: Arrays
) -> dict[str, Array]:
    """Return W_q, W_k, W_v, W_o, and with `bias` b_q, b_k, b_v, b_o, as the settings describe them.

    W_q is `[m h*d]`, W_k and W_v are `[n h*d]`, and W_o is `[h*e m]`. Without a memory, n is m.

    Tokens are rows: `q = x W_q + b_q`. A document with tokens in columns writes `W x + b`; its arrays are transposed
    here. Arrays in `drawn`, from the setting `draws`, are used unchanged.

    Raises:
        UserError: a name does not belong to a projection, or an array does not fit x.
    """
    arrays = read_document(settings, inputs, head, random_source)
    for name in drawn:
        if name in arrays:
            raise UserError(f"projections.given.{name} and draws.{name} both define {name}; give only one of them")
    unused = [name for name in arrays if name in BIASES and name not in (*settings.order, *settings.order_per_head)]
    if unused and not bias:
        raise UserError(f"projections: {' and '.join(unused)} given, but bias=false adds none; write bias=true")
    arrays |= drawn
    arrays = draw_in_order(settings, arrays, inputs, head, bias, random_source) | arrays
    names = MATRICES + BIASES if bias else MATRICES
    for name in names:
        rows, columns = shape_of(name, arrays, settings, inputs, head)
        if name not in arrays:
            arrays[name] = make_array(settings, name, rows, columns, random_source)
        if name in MATRICES:
            meaning = "d_model" if inputs.of(name) is inputs.x else "the memory's width"
            require_rows(name, arrays[name], "the size of v" if name == "W_o" else meaning, rows, settings.transposed)
        elif arrays[name].size != columns:
            raise UserError(f"projections.{name} has {arrays[name].size} numbers; expected {columns}")
    return {name: arrays[name].reshape(-1) if name in BIASES else arrays[name] for name in names}


def read_document(settings: Projections, inputs: Inputs, head: int, random_source: RandomSource) -> dict[str, Array]:
    """Return the arrays that the settings define: written out, in a file, or as printed products; a bias is one row."""
    arrays = {}
    if settings.file is not None or not all(map(is_plain, settings.given.values())):
        from attn_exp.problem import from_files  # noqa: PLC0415 - most runs have none

        arrays = from_files.read_projections(settings, inputs, head)
    for name, value in settings.given.items():
        if is_plain(value):
            matrix = read_matrix(as_rows(value), f"projections.{name}", random_source)
            arrays[name] = matrix.T if settings.columns or settings.transposed else matrix
    arrays |= recover_matrices(settings.printed, inputs, random_source)
    for name in arrays:
        if name not in MATRICES + BIASES:
            raise UserError(unknown(name, MATRICES + BIASES, "array of projections"))
    return arrays


def require_rows(name: str, matrix: Array, meaning: str, size: int, transposed: bool) -> None:
    if len(matrix) != size:
        fits = f"; it fits with projections.transposed={str(not transposed).lower()}" if matrix.shape[1] == size else ""
        raise UserError(f"projections.{name} has the shape {list(matrix.shape)}; expected {meaning}={size} rows{fits}")


def shape_of(name: str, arrays: Arrays, settings: Projections, inputs: Inputs, head: int) -> tuple[int, int]:
    """Return the shape of a matrix; for a bias, the shape of the matrix it belongs to.

    The columns are counted in the matrix in `arrays`; if it does not exist yet, the settings give their number.
    """
    columns = widths(settings, inputs.width())
    columns |= {key[-1]: array.shape[1] for key, array in arrays.items() if key in MATRICES}
    if name[-1] == "o":
        return columns["v"] * count_members(columns["q"], columns["k"], head), columns["o"]
    return inputs.width(name), columns[name[-1]]


def make_array(settings: Projections, name: str, rows: int, columns: int, random_source: RandomSource) -> Array:
    """Make an array that the settings do not define: draw it from its own stream, or return the identity or zeros.

    By default, a drawn array is scaled so that multiplying by it roughly keeps magnitudes. `rows` and `columns` are
    the sizes of the matrix, or of the matrix that a bias belongs to.

    Raises:
        UserError: the memory is not as wide as x, so the identity would cut or pad it.
    """
    shape = (rows, columns) if name in MATRICES else (1, columns)
    if settings.source in DISTRIBUTIONS:
        distribution = Distribution(settings.source, settings.low, settings.high, key="projections.")
        numbers = random_source._replace(stream=None).array(name, distribution, shape)
        default_spread = (
            1.0 if settings.source == "integers" else 1 / math.sqrt(shape[0] if name in MATRICES else columns)
        )
        return (default_spread if settings.spread is None else settings.spread) * numbers
    if name in ("W_k", "W_v") and rows != columns:
        raise UserError(
            f"projections=identity needs a memory as wide as x, but its vectors have {rows} numbers, and those of x "
            f"have {columns}; choose projections=normal"
        )
    return np.eye(*shape) if name in MATRICES else np.zeros(shape)


def recover_matrices(printed: Mapping[str, Any], inputs: Inputs, random_source: RandomSource) -> dict[str, Array]:
    """Return each matrix W for which a document prints only the product `x W`: the solution of `x W = product`."""
    arrays = {}
    for name, product in printed.items():
        x = inputs.of(name)
        if x.shape[0] != x.shape[1] or np.linalg.matrix_rank(x) < len(x):
            shape, input_name = f"{x.shape[0]}x{x.shape[1]}", "x" if x is inputs.x else "memory"
            raise UserError(
                f"projections: {', '.join(printed)} can be recovered only if {input_name} has an inverse, but this "
                f"{shape} {input_name} has none"
            )
        result = read_matrix(product, f"projections.{name}", random_source)
        if len(result) != len(x):
            raise UserError(
                f"projections.{name}: {len(result)} rows are printed; expected one for each of {len(x)} tokens"
            )
        arrays[name] = np.linalg.solve(x, result)
    return arrays


def as_rows(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return value[None]
    return [value] if isinstance(value, (list, tuple)) and value and not isinstance(value[0], (list, tuple)) else value


def draw_in_order(
    settings: Projections, defined: Arrays, inputs: Inputs, head: int, bias: bool, random_source: RandomSource
) -> dict[str, Array]:
    """Return the arrays that a generator draws one after another; empty if the settings name no generator.

    The arrays in the setting `order_per_head` are drawn first, head by head. Then the arrays in `order` are drawn, each
    in one piece. By default, the order is W_q, W_k, W_v, W_o and then the biases, if any, without `defined` arrays.
    With `torch_linear`, each bias is drawn right after its matrix.

    Raises:
        UserError: a name is unknown, the generator or seed is invalid, or the heads do not divide a width.
    """
    stream = find_stream(settings, random_source)
    if stream is None:
        return {}
    if settings.source == "torch_mha":
        sizes = (settings.width, settings.key_width, settings.value_width, settings.output_width)
        if any(size not in (None, inputs.width()) for size in sizes) or settings.order or settings.order_per_head:
            raise UserError(
                "projections.source=torch_mha takes its sizes and order from nn.MultiheadAttention; do not set them"
            )
        arrays = draw_multi_head_attention(stream, inputs.width(), bias, inputs.width("W_k"))
        return {name: np.atleast_2d(array).astype(np.float64) for name, array in arrays.items()}
    parts: dict[str, list[Array]] = {}
    for name, heads in list_draws(settings, defined, bias, head):
        rows, columns = shape_of(name, defined, settings, inputs, head)
        check_divides(heads, columns, "d_model" if columns == inputs.width() else f"the columns of {name}")
        parts.setdefault(name, []).append(draw_next(settings, stream, name, rows, columns // heads))
    return {name: np.hstack(arrays) for name, arrays in parts.items()}


def find_stream(settings: Projections, random_source: RandomSource) -> Stream | None:
    """Return the stream that draws all projections in order; None if each array has its own stream.

    If the projections have their own generator, it is the stream of that generator, otherwise the stream of the run.
    """
    generator, seed, key = find_seed(settings, "projections")
    if settings.source in LAYERS:
        if generator not in (None, "torch"):
            raise UserError(f"projections.generator={generator}: {settings.source} can be drawn only by torch")
        generator = "torch"
    if (generator or random_source.generator) != STREAMS:
        return choose_source(generator, seed, key, random_source, draws_once=False).stream
    if seed is not None:
        raise UserError(f"{key}={seed} needs projections.generator, such as torch")
    if settings.order or settings.order_per_head:
        raise UserError(
            "projections.order needs projections.generator, such as torch; by default, each array has its own stream"
        )
    return None


def list_draws(settings: Projections, defined: Arrays, bias: bool, head: int) -> Iterator[tuple[str, int]]:
    """Yield the name of each array that is drawn, in order, and the number of heads that it is split into.

    An array that is drawn head by head appears once per head.

    Raises:
        UserError: a name is unknown, or the order lacks a W_q, W_k or W_v that no other setting provides.
    """
    if settings.order_per_head or settings.order:
        names = settings.order_per_head * head + settings.order
        for name in names:
            if name not in MATRICES + BIASES:
                raise UserError(unknown(name, MATRICES + BIASES, "array of projections"))
        missing = [name for name in MATRICES[:3] if name not in names and name not in defined]
        if missing:
            raise UserError(
                f"projections.order leaves out {' and '.join(missing)}; name every matrix that is to be drawn, "
                f"such as [{','.join(MATRICES[:3])}]"
            )
        for index, name in enumerate(names):
            yield name, head if index < len(settings.order_per_head) * head else 1
    elif settings.legacy_seed is None and settings.source in (*DISTRIBUTIONS, "torch_linear"):
        pairs = [name for pair in zip(MATRICES, BIASES, strict=True) for name in pair]
        default = pairs if settings.source == "torch_linear" else (MATRICES + BIASES)
        yield from ((name, 1) for name in default if name not in defined and (bias or name in MATRICES))


def widths(settings: Projections, d_model: int) -> dict[str, int]:
    """Return the numbers of columns of W_q, W_k, W_v and W_o, by letter."""
    query = settings.width or d_model
    key = settings.key_width or query
    return {"q": query, "k": key, "v": settings.value_width or key, "o": settings.output_width or d_model}


def draw_next(settings: Projections, stream: Stream, name: str, rows: int, columns: int) -> Array:
    if settings.source == "torch_linear":
        layer = draw_linear_bias if name in BIASES else draw_linear_weight
        return np.atleast_2d(layer(stream, rows, columns)).astype(np.float64)
    name_of_distribution = settings.distribution or (settings.source if settings.source in DISTRIBUTIONS else "normal")
    spread = 1.0 if settings.spread is None else settings.spread
    distribution = Distribution(name_of_distribution, settings.low, settings.high, spread, key="projections.")
    size = (1 if name in BIASES else rows, columns)
    array = next_array(stream, distribution, size[::-1] if settings.columns else size)
    return (array.T if settings.columns else array).astype(np.float64)


def draw_linear_weight(stream: Stream, inputs: int, outputs: int) -> Array:
    """Draw the weight of a new `nn.Linear`, uniform within `1 / sqrt(inputs)`, as `[inputs outputs]`."""
    spread = math.sqrt(2 / (1 + math.sqrt(5) ** 2)) / math.sqrt(inputs)  # the gain of a leaky ReLU with slope sqrt(5)
    return stream.uniform((outputs, inputs), -math.sqrt(3) * spread, math.sqrt(3) * spread).T


def draw_linear_bias(stream: Stream, inputs: int, outputs: int) -> Array:
    """Draw the bias `[outputs]` of a new `nn.Linear`, which PyTorch draws right after the weight."""
    return stream.uniform((outputs,), -1 / math.sqrt(inputs), 1 / math.sqrt(inputs))


def draw_multi_head_attention(stream: Stream, size: int, biases: bool, key_size: int) -> dict[str, Array]:
    """Draw the projections of a new `nn.MultiheadAttention(size, heads, bias=biases)`.

    PyTorch draws the output projection first, like any `Linear`. Then it draws one matrix `[3 size, size]` of queries,
    keys and values, uniform within `sqrt(6 / (size + 3 size))`. Every bias is zero; the bias of the output is drawn,
    and then set to zero. If keys and values have another size (`kdim=key_size, vdim=key_size`), PyTorch draws three
    matrices one after another instead of the fused one.
    """
    output = draw_linear_weight(stream, size, size)
    if biases:
        draw_linear_bias(stream, size, size)
    is_fused = key_size == size
    shapes = [(3 * size, size)] if is_fused else [(size, size), (size, key_size), (size, key_size)]
    bounds = [math.sqrt(3) * math.sqrt(2 / sum(shape)) for shape in shapes]
    drawn = [stream.uniform(shape, -bound, bound) for shape, bound in zip(shapes, bounds, strict=True)]
    sides = np.split(drawn[0], 3) if is_fused else drawn
    zeros = {f"b_{letter}": np.zeros(size, np.float32) for letter in "qkvo"} if biases else {}
    return {f"W_{letter}": side.T for letter, side in zip("qkv", sides, strict=True)} | {"W_o": output} | zeros


def check_divides(head: int, size: int, meaning: str) -> None:
    if size % head:
        raise UserError(f"head={head} does not divide {meaning}={size}; choose one of {divisors(size)}")


def divisors(size: int) -> str:
    return ", ".join(str(divisor) for divisor in range(1, size + 1) if size % divisor == 0)


def count_members(queries: int, keys: int, head: int) -> int:
    """Return how many query heads share a key/value head, from the widths of queries and keys.

    Raises:
        UserError: the widths do not split into heads of equal size.
    """
    members = queries // keys
    if queries % keys or (members > 1 and head % members):
        raise UserError(f"projections.W_q has {queries} columns, W_k {keys}; they do not split into equal heads")
    return members
