"""Read a layer's projections from its trace, and what surrounds its attention: norms and residuals.

In every run, each number of q, k or v is one column of a parameter applied to its token, up to a factor and a bias.
Finding these columns needs no names. `read_matrices` takes the pairs that `cores` found and returns W_q, W_k, W_v, W_o
and their biases; `find_surroundings` then fits norms and residuals to the layer's input and output.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array, Arrays
from attn_exp.diagnosis.observe.cores import Pair, Rows
from attn_exp.diagnosis.observe.recording import Recording, from_axes, stack_tokens
from attn_exp.diagnosis.observe.trace import Producer, Trace, find_axes, follow_labels
from attn_exp.forms.pipeline import Around, Norm, apply_norm

Column = tuple[int, int]
"""A column of a projection: the index of the projection's operation, and the index of the column."""
NAMES = {"q": "queries", "k": "keys", "v": "values"}
"""The names of q, k and v in messages."""
MAX_BIAS_DISTANCE = 5
"""Number of operations after a product that are searched for its bias."""
NORM_KINDS, EPSILONS = ("LayerNorm", "RMSNorm", "L2"), (1e-5, 1e-6, 1e-12, 1e-8, 1e-3, 0.0)
"""Norms that are tried around attention, and their epsilons, most common first."""


class UnreadMatricesError(Exception):
    """The projections cannot be read; the message is the end of a sentence."""


@dataclass(frozen=True, eq=False)
class Projection:
    """A product of tokens with a parameter.

    - `operation`: the index of the operation.
    - `weight`: `[m n]`. `bias`: `[n]`, or None.
    - `side`: 0 if the tokens are the left input of the product, else 1.
    """

    operation: int
    weight: Array
    bias: Array | None
    side: int


@dataclass(frozen=True, eq=False)
class HeadColumns:
    """How q, k or v is computed in each head.

    A token has one row per head. A row's *rank* is the number of earlier rows of the same token; it identifies the
    head.

    - `columns`: the columns of `projections` that a head uses, by its rank.
    - `is_rotated`: rows of later tokens mix these columns with others, as rotary positions do.
    - `inputs`: the rows that enter the projections, `[runs tokens m]`.
    """

    columns: Mapping[int, tuple[Column, ...]]
    projections: Sequence[Projection]
    is_rotated: bool
    inputs: Array


class Match(NamedTuple):
    """For each number in a row, the column that produces it, and the factor by which that product is multiplied."""

    columns: list[int]
    factors: Array


def find_projections(recording: Recording, producer: Producer) -> list[Projection]:
    """Return the products with a parameter from which an array is computed, without another such product in between."""
    projections, pending, visited = list[Projection](), [producer], set[int]()
    while pending:
        index = pending.pop()
        if not isinstance(index, int) or index in visited:
            continue
        visited.add(index)
        projection = read_projection(recording, index)
        if projection is None:
            pending += recording.first.operations[index].producers
        else:
            projections.append(widen(recording, projection))
    return sorted(projections, key=lambda projection: projection.operation)


def read_projection(recording: Recording, index: int) -> Projection | None:
    """Return the projection that an operation computes; None if it is not a product of tokens and a parameter."""
    operation = recording.first.operations[index]
    axes = find_axes(operation)
    if axes is None or any(axes.lengths[letter] > 1 for letter in axes.batch):
        return None
    is_left_live, is_right_live = (recording.is_live(index, input_index) for input_index in axes.input_indices)
    if is_left_live == is_right_live:
        return None
    token_side, weight_side = (0, 1) if is_left_live else (1, 0)
    weight = axes.arrange_side(operation.inputs[axes.input_indices[weight_side]], weight_side)[0].T
    return Projection(index, np.asarray(weight, float), find_bias(recording, index, token_side), token_side)


def widen(recording: Recording, projection: Projection) -> Projection:
    """Return a projection of whole tokens; it is block diagonal if the given one multiplies each slice of a token."""
    rows = recording.read_sides(projection.operation, projection.side)
    tokens = None if rows is None else recording.find_tokens(rows)
    slices = 1 if tokens is None or (tokens < 0).any() else int(find_ranks(tokens).max()) + 1
    widths = {array.shape[-1] for array in recording.inputs_by_run[0].values()}
    if slices == 1 or slices * len(projection.weight) not in widths:
        return projection
    bias = None if projection.bias is None else np.tile(projection.bias, slices)
    return replace(projection, weight=np.kron(np.eye(slices), projection.weight), bias=bias)


def find_bias(recording: Recording, index: int, token_side: int) -> Array | None:
    """Return the bias `[n]` of a product, which the operation itself or a later one adds; None if there is none."""
    operation = recording.first.operations[index]
    axes = find_axes(operation)
    assert axes is not None
    left, right, output = axes.product.subscripts
    factors = (operation.inputs[input_index] for input_index in axes.input_indices)
    added = operation.output - np.einsum(f"{left},{right}->{output}", *factors)
    largest = max(np.abs(operation.output).max(initial=0.0), 1.0)
    if np.abs(axes.arrange_output(added)[0]).max(initial=0.0) <= recording.tolerance * largest:
        later = find_added_later(recording.first, index)
        if later is None:
            return None
        added = later
    rows = axes.arrange_output(added)[0] if token_side == 0 else axes.arrange_output(added)[0].T
    return np.asarray(rows[0]) if np.allclose(rows, rows[:1], rtol=0, atol=1e-6) else None


def find_added_later(trace: Trace, index: int) -> Array | None:
    """Return what a later operation adds directly to a product, in the layout of the product; None if nothing."""
    output = trace.operations[index].output
    end = min(index + MAX_BIAS_DISTANCE, len(trace.operations))
    labels_of = follow_labels(trace, index, np.arange(output.size).reshape(output.shape), end)
    for operation in trace.operations[index + 1 : end]:
        for producer in operation.producers:
            if not isinstance(producer, int) or producer not in labels_of:
                continue  # not computed from the product
            if operation.product is not None or operation.output.size != output.size:
                return None
            if operation.name.startswith("add") and operation.output.shape == labels_of[producer].shape:
                added = np.empty(output.size)
                added[labels_of[producer].ravel()] = (operation.output - trace.operations[producer].output).ravel()
                return added.reshape(output.shape)
    return None


def find_ranks(tokens: Array) -> Array:
    """Return for each row `[n r]` how many earlier rows have the same token."""
    counts, ranks = dict[int, int](), np.empty(tokens.size, int)
    for row, number in enumerate(tokens.ravel().tolist()):
        ranks[row] = counts.get(number, 0)
        counts[number] = ranks[row] + 1
    return ranks.reshape(tokens.shape)


def read_heads(recording: Recording, rows: Rows) -> HeadColumns:
    """Return how q, k or v is computed from projections.

    Raises:
        UnreadMatricesError: no projection computes it, or its numbers are not columns of a parameter times one factor.
    """
    projections = find_projections(recording, rows.producer)
    if not projections:
        raise UnreadMatricesError("not computed by a product with a parameter")
    if (rows.tokens < 0).any():
        raise UnreadMatricesError("computed from several tokens")
    inputs, *other_inputs = [read_token_rows(recording, projection) for projection in projections]
    if not all(np.array_equal(other, inputs, equal_nan=True) for other in other_inputs):
        raise UnreadMatricesError("computed by several products of different inputs")
    weight_columns = [
        (projection.operation, column) for projection in projections for column in range(projection.weight.shape[1])
    ]
    weight = np.concatenate([projection.weight for projection in projections], axis=1)
    groups = list(group_rows(recording, rows))
    columns, factors, is_rotated = dict[int, tuple[Column, ...]](), list[float](), False
    for rank, is_chosen in groups:
        match = match_columns(rows, is_chosen, inputs, weight, recording.tolerance)
        if match is None or (rank in columns and not have_factor(match.factors, factors[0], recording)):
            is_rotated = True  # a rotation leaves the columns at position 0 and mixes them at all others
            continue
        head_columns = tuple(weight_columns[column] for column in match.columns)
        factors += match.factors.tolist()
        if columns.setdefault(rank, head_columns) != head_columns:
            raise UnreadMatricesError("computed from different columns at different positions")
    if len(columns) < len({rank for rank, _ in groups}):
        raise UnreadMatricesError("not the columns of a parameter")
    if not have_factor(np.array(factors), factors[0], recording):
        raise UnreadMatricesError("scaled by different factors")
    return HeadColumns(columns, projections, is_rotated, inputs)


def group_rows(recording: Recording, rows: Rows) -> Iterator[tuple[int, Array]]:
    """Yield, for each head and each position, the rank of the head and a boolean mask `[n r]` of its rows there."""
    ranks = find_ranks(rows.tokens)
    positions = np.array([position for _, _, position in recording.tokens])[rows.tokens]
    for rank in range(int(ranks.max()) + 1):
        for position in np.unique(positions[ranks == rank]).tolist():
            yield rank, (ranks == rank) & (positions == position)


def have_factor(factors: Array, factor: float, recording: Recording) -> bool:
    """Return whether all factors are the same as this one, up to rounding."""
    return bool(np.ptp([*factors, factor]) <= max(1e-6, 100 * recording.tolerance) * abs(factor))


def read_token_rows(recording: Recording, projection: Projection) -> Array:
    """Return the row of each token that enters a projection, in each run, `[runs tokens m]`.

    If a projection multiplies a token slice by slice, its slices are concatenated.

    Raises:
        UnreadMatricesError: the shapes of its inputs differ between runs.
    """
    runs = recording.read_sides(projection.operation, projection.side)
    tokens = None if runs is None else recording.find_tokens(runs)
    if runs is None or tokens is None:
        raise UnreadMatricesError("computed by a product that differs between runs")
    width, full_width = runs[0].shape[-1], len(projection.weight)
    ranks = find_ranks(tokens)[0] if full_width > width else np.zeros(tokens.shape[1], int)
    rows = np.full((len(runs), len(recording.tokens), full_width), np.nan)
    for row, number in enumerate(tokens[0].tolist()):
        if number >= 0:
            start = ranks[row] * width
            rows[:, number, start : start + width] = [run[0, row] for run in runs]
    return rows


def match_columns(rows: Rows, is_chosen: Array, inputs: Array, weight: Array, tolerance: float) -> Match | None:
    """Return which column of a weight `[m c]` produces each number of the chosen rows; None if no column does.

    A number must be the product of its token and one column, up to a factor and a constant. As vectors over the runs,
    minus their means, the two then have a cosine similarity of 1 or -1.
    """
    products = np.concatenate([inputs[:, number] for number in rows.tokens[is_chosen].tolist()]) @ weight
    numbers = np.concatenate(
        [np.array([run[index] for run in rows.values]) for index in zip(*np.nonzero(is_chosen), strict=True)]
    )
    products = products - products.mean(axis=0)
    numbers = np.asarray(numbers - numbers.mean(axis=0), float)
    lengths = np.maximum(np.linalg.norm(products, axis=0), 1e-300)
    projected = numbers.T @ (products / lengths)
    columns = np.abs(projected).argmax(axis=1)
    best = projected[np.arange(len(columns)), columns]
    if not np.isfinite(numbers).all() or (np.abs(best) < (1 - tolerance) * np.linalg.norm(numbers, axis=0)).any():
        return None
    return Match(columns.tolist(), best / lengths[columns])


# The matrices of a whole layer


@dataclass(frozen=True, eq=False)
class Matrices:
    """The weight matrices of a layer, as in `x W + b`, and its numbers of heads.

    - `arrays`: W_q, W_k, W_v, W_o and their biases, by name.
    - `groups`: the number of key/value heads.
    - `rotated`: which of q, k and v are rotated.
    - `inputs`: the rows that the projections of q, k and v read, `[runs tokens m]`.
    - `output`: the output projection, or None.
    """

    arrays: Arrays
    heads: int
    groups: int
    rotated: frozenset[str]
    inputs: Arrays
    output: Projection | None


def read_matrices(recording: Recording, pairs: Sequence[Pair]) -> Matrices:
    """Read the matrices of a layer as columns of its parameters.

    Raises:
        UnreadMatricesError: the matrices cannot be read; the message says why.
    """
    arrays, rotated, inputs = dict[str, Array](), set[str](), dict[str, Array]()
    heads = dict[str, list[tuple[Column, ...]]]()
    for name, plural in NAMES.items():
        try:
            sources = [read_heads(recording, getattr(pair, name)) for pair in pairs]
        except UnreadMatricesError as error:
            raise UnreadMatricesError(f"{plural} are {error}") from None
        heads[name] = [source.columns[rank] for source in sources for rank in sorted(source.columns)]
        rotated |= {name} if any(source.is_rotated for source in sources) else set()
        inputs[name] = sources[-1].inputs
        projections = [projection for source in sources for projection in source.projections]
        arrays |= join_columns(name, heads[name], projections)
    output = find_output(recording, pairs)
    if output is not None:
        arrays |= {"W_o": output.weight} | ({} if output.bias is None else {"b_o": output.bias})
    groups = len({frozenset(columns) for columns in heads["k"]})
    return Matrices(arrays, len(set(heads["q"])), groups, frozenset(rotated), inputs, output)


def join_columns(
    name: str, heads: Sequence[tuple[Column, ...]], projections: Sequence[Projection]
) -> dict[str, Array]:  # fmt: skip
    """Return the matrix of q, k or v, from the columns that its heads use, and its bias if a projection has one."""
    by_operation = {projection.operation: projection for projection in projections}
    used = [(by_operation[operation], column) for operation, column in sorted({*itertools.chain(*heads)})]
    arrays = {f"W_{name}": np.array([projection.weight[:, column] for projection, column in used]).T}
    if any(projection.bias is not None for projection, _ in used):
        biases = [0.0 if projection.bias is None else projection.bias[column] for projection, column in used]
        arrays[f"b_{name}"] = np.array(biases)
    return arrays


def find_output(recording: Recording, pairs: Sequence[Pair]) -> Projection | None:
    """Return the output projection: the first product with a parameter after the context; None if there is none."""
    contexts = {pair.second for pair in pairs}
    dependent = set[Producer](contexts)
    for index in range(min(contexts) + 1, len(recording.first.operations)):
        if dependent.isdisjoint(recording.first.operations[index].producers):
            continue
        dependent.add(index)
        projection = read_projection(recording, index)
        if projection is not None and index not in contexts:
            return projection
    return None


# What surrounds attention: norms before the projections, and norms and residuals after them


def find_surroundings(recording: Recording, matrices: Matrices, context: Array | None) -> Around | None:
    """Return the norms and residuals around attention; None if there are none.

    `context` contains the context rows of the first run, `[tokens n]`, for layers without an output projection.

    Raises:
        UnreadMatricesError: something else surrounds attention.
    """
    before, output, answer = find_norms_before(recording, matrices), matrices.output, answer_rows(recording)
    around: Around | None = before
    if output is not None:
        inner_rows = output_inputs(recording, output) @ output.weight + (0.0 if output.bias is None else output.bias)
        around = fit_surroundings(recording, before, inner_rows, answer)
        if around is None:
            last_producer = recording.first.outputs[0][0]
            end = last_producer + 1 if isinstance(last_producer, int) else None
            names = dict.fromkeys(
                operation.name for operation in recording.first.operations[output.operation + 1 : end]
            )
            raise UnreadMatricesError(f"the operations after the output projection are not known ({', '.join(names)})")
    elif context is not None and answer is not None:
        # no error if nothing fits: the check compares the context and the output with the definition anyway
        around = fit_surroundings(recording, before, context[None], answer[:1]) or before
    return around if str(around) else None


def find_norms_before(recording: Recording, matrices: Matrices) -> Around:
    """Return the norms between the tokens and the projections.

    Raises:
        UnreadMatricesError: keys have another norm than values or, in a layer with one input, another than queries.
    """
    tokens, tolerance = stack_tokens(recording), recording.tolerance
    norms = {name: find_norm(tokens, matrices.inputs[name], plural, tolerance) for name, plural in NAMES.items()}
    has_one_input = len(recording.layer.inputs) == 1
    for name in "qv" if has_one_input else "v":
        if not are_same_norms(norms[name], norms["k"], tolerance):
            raise UnreadMatricesError("queries, keys and values are normalized in different ways")
    return Around(before=norms["q"], of_memory=None if has_one_input else norms["k"])


def fit_surroundings(recording: Recording, before: Around, inner_rows: Array, answer: Array | None) -> Around | None:
    """Return the norms and residuals that turn the rows before them into the answer; None if nothing fits.

    `inner_rows` `[runs tokens n]` are these rows: the outputs of the output projection, or the context.
    """
    if answer is None or inner_rows.shape[:2] != answer.shape[:2]:
        raise UnreadMatricesError("the output does not have one row per token")
    x = stack_tokens(recording)[: len(answer), : answer.shape[1]]
    examples = len(recording.inputs_by_run[0][recording.query_role])
    row_numbers = np.arange(answer.shape[1]).reshape(examples, -1)
    for order in (row_numbers.ravel(), row_numbers.T.argsort(axis=None).ravel()):  # batch first, or tokens first
        for around in list_possible(before, x, inner_rows[:, order], answer, recording.tolerance):
            if are_close(around.finish(x, inner_rows[:, order]), answer, recording.tolerance):
                return around
    return None


def are_same_norms(norm: Norm | None, other: Norm | None, tolerance: float) -> bool:
    if norm is None or other is None:
        return norm is other
    return (
        (norm.kind, norm.eps) == (other.kind, other.eps)
        and are_close(norm.gain, other.gain, tolerance)
        and are_close(norm.shift, other.shift, tolerance)
    )


def list_possible(before: Around, x: Array, inner_rows: Array, answer: Array, tolerance: float) -> Iterator[Around]:
    """Yield possible steps around attention: `before` alone, then with a residual, a last norm, a norm after W_o."""
    yield before
    if inner_rows.shape != answer.shape:
        return
    residuals = [replace(before, residual=True)] if x.shape == inner_rows.shape else []
    residuals += (
        [replace(before, residual=True, residual_of_normed=True)] if residuals and before.before is not None else []
    )
    yield from residuals
    for around in (before, *residuals):
        norm = fit_norm(around.finish(x, inner_rows), answer, tolerance)
        if norm is not None:
            yield replace(around, last=norm)
    for around in residuals:
        norm = fit_norm(inner_rows, answer - (around.x(x) if around.residual_of_normed else x), tolerance)
        if norm is not None:
            yield replace(around, inner=norm)


def find_norm(tokens: Array, inputs: Array, plural: str, tolerance: float) -> Norm | None:
    """Return the norm between the tokens and a projection's inputs; None if the inputs are the tokens.

    Raises:
        UnreadMatricesError: there is another operation in between.
    """
    is_known = np.isfinite(inputs).all(axis=(0, 2))
    tokens = tokens[..., : inputs.shape[-1]]
    if inputs.shape == tokens.shape:
        if are_close(inputs[:, is_known], tokens[:, is_known], tolerance):
            return None
        norm = fit_norm(tokens[:, is_known], inputs[:, is_known], tolerance)
        if norm is not None:
            return norm
    raise UnreadMatricesError(f"the {plural} are not computed from the tokens alone")


def fit_norm(x: Array, target: Array, tolerance: float) -> Norm | None:
    """Fit the norm along the last axis that maps x to `target`, with its gain and shift; None if no norm does."""
    for kind, eps in itertools.product(NORM_KINDS, EPSILONS):
        rows = apply_norm(kind, x, eps).reshape(-1, x.shape[-1])
        target_rows = target.reshape(-1, target.shape[-1])
        centred = rows - rows.mean(axis=0)
        centred_target = target_rows - target_rows.mean(axis=0)
        gain = (centred * centred_target).sum(axis=0) / np.maximum((centred * centred).sum(axis=0), 1e-300)
        shift = target_rows.mean(axis=0) - gain * rows.mean(axis=0)
        if are_close(rows * gain + shift, target_rows, tolerance):
            return Norm(kind, gain, shift, eps)
    return None


def output_inputs(recording: Recording, output: Projection) -> Array:
    """Return the rows that enter the output projection, `[runs rows m]`."""
    return np.array([rows[0] for rows in recording.read_sides(output.operation, output.side) or ()], float)


def answer_rows(recording: Recording) -> Array | None:
    """Return the layer's first output with one row per query token in each run, `[runs tokens n]`, or None."""
    role = recording.query_role
    examples, length, _ = recording.inputs_by_run[0][role].shape
    for outputs in zip(*(trace.outputs for trace in recording.traces), strict=False):
        arrays = [from_axes(array, recording.layer.inputs[role]) for _, array in outputs]
        rows = [array.reshape(-1, array.shape[-1]) for array in arrays if array.ndim]
        if rows and len(rows[0]) == examples * length:
            return np.array(rows)
    return None


def are_close(array: Array, expected: Array, tolerance: float) -> bool:
    return array.shape == expected.shape and bool(
        np.abs(array - expected).max(initial=0.0) <= tolerance * max(np.abs(expected).max(), 1.0)
    )
