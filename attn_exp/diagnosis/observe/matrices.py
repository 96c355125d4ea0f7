"""Read a layer's projections from its trace, and what surrounds its attention: norms and residuals.

In every run, each number of q, k or v is one column of a parameter applied to its token, up to a factor and a bias.
Finding these columns needs no names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attn_exp.arrays import Array, Arrays
from attn_exp.diagnosis.observe.cores import Pair, Rows
from attn_exp.diagnosis.observe.recording import Recording, tokens_given, unlay
from attn_exp.diagnosis.observe.trace import Producer, Trace, find_axes, follow_labels
from attn_exp.forms.pipeline import Around, Norm, normed

Key = tuple[int, int]
"""A column of a projection: the index of the projection's operation, and the index of the column."""


class UnreadMatricesError(Exception):
    """The projections cannot be read; the message is the end of a sentence."""


@dataclass(frozen=True, eq=False)
class Projection:
    """A product of tokens with a parameter: `weight` `[m n]`, `bias` `[n]`; `side` 0 if tokens are its left input."""

    operation: int
    weight: Array
    bias: Array | None
    side: int


@dataclass(frozen=True, eq=False)
class Side:
    """How q, k or v of each head is computed: the `columns` of projections by rank, and their `factor`.

    The rank of a row, which stands for its head, is the number of earlier rows of the same token. `turns` means that
    rows of later tokens mix these columns with others, as rotary positions do.
    """

    columns: Mapping[int, tuple[Key, ...]]
    factor: float
    turns: bool
    inputs: Array


def find_projections(recording: Recording, producer: Producer) -> list[Projection]:
    """Return the products with a parameter from which an array is computed without any further such product."""
    trace = recording.first
    found, ahead, met = list[Projection](), [producer], set[int]()
    while ahead:
        place = ahead.pop()
        if not isinstance(place, int) or place in met:
            continue
        met.add(place)
        made = read_projection(recording, place)
        if made is not None:
            found.append(widen(recording, made))
        else:
            ahead += trace.operations[place].producers
    return sorted(found, key=lambda one: one.operation)


def read_projection(recording: Recording, place: int) -> Projection | None:
    operation = recording.first.operations[place]
    axes = find_axes(operation)
    if axes is None or any(axes.lengths[letter] > 1 for letter in axes.batch):
        return None
    live = [recording.is_live(place, one) for one in axes.places]
    if sum(live) != 1:
        return None
    given = axes.side(operation.inputs[axes.places[live[0]]], live[0])
    return Projection(
        place, np.asarray(given[0].T, float), find_bias(recording.first, place, live[0], recording.exact), 1 - live[0]
    )


def widen(recording: Recording, made: Projection) -> Projection:
    """Return a projection of slices of a token, such as its heads, as one of the whole token: a block matrix."""
    every = recording.sides(made.operation, made.side)
    tokens = None if every is None else recording.find_tokens(every)
    count = 1 if tokens is None or (tokens < 0).any() else int(find_ranks(tokens).max()) + 1
    widths = {one.shape[-1] for one in recording.given[0].values()}
    if count == 1 or count * len(made.weight) not in widths:
        return made
    bias = None if made.bias is None else np.tile(made.bias, count)
    return replace(made, weight=np.kron(np.eye(count), made.weight), bias=bias)


def find_bias(trace: Trace, place: int, are_rows: bool, exact: float) -> Array | None:
    """Return the bias `[n]` of a product, added by the operation itself or by one soon after it.

    `are_rows` means that tokens are the rows of the product rather than its columns.
    """
    operation = trace.operations[place]
    axes = find_axes(operation)
    assert axes is not None
    left, right, output = axes.product.subscripts
    made = np.einsum(f"{left},{right}->{output}", *(operation.inputs[place] for place in axes.places))
    gap = axes.output(operation.output - made)[0]
    if np.abs(gap).max(initial=0.0) <= exact * max(np.abs(operation.output).max(initial=0.0), 1.0):
        later = added_later(trace, place)
        if later is None:
            return None
        gap = axes.output(later)[0]
    rows = gap if are_rows else gap.T
    return np.asarray(rows[0]) if np.allclose(rows, rows[:1], rtol=0, atol=1e-6) else None


def added_later(trace: Trace, place: int) -> Array | None:
    output, last = trace.operations[place].output, min(place + NEAR, len(trace.operations))
    known = follow_labels(trace, place, np.arange(output.size).reshape(output.shape), last)
    for one in trace.operations[place + 1 : last]:
        for producer in (made for made in one.producers if isinstance(made, int)):
            labels = known.get(producer)
            if labels is None:
                continue
            if one.product is not None or one.output.size != output.size:
                return None
            if one.name.startswith("add") and one.output.shape == labels.shape:
                added = np.empty(output.size)
                added[labels.ravel()] = (one.output - trace.operations[producer].output).ravel()
                return added.reshape(output.shape)
    return None


NEAR = 5
"""Number of operations after a product that are searched for its bias."""


def find_ranks(tokens: Array) -> Array:
    """Return for each row `[n r]` how many earlier rows have the same token."""
    seen, ranks = dict[int, int](), np.empty(tokens.size, int)
    for place, number in enumerate(tokens.ravel().tolist()):
        ranks[place] = seen.get(number, 0)
        seen[number] = ranks[place] + 1
    return ranks.reshape(tokens.shape)


def read_side(recording: Recording, rows: Rows) -> Side:
    """Return how q, k or v is computed from projections.

    Raises:
        UnreadMatricesError: no projection computes it, or its numbers are not single columns times one factor.
    """
    projections = find_projections(recording, recording.first.operations[rows.operation].producers[rows.place])
    if not projections:
        raise UnreadMatricesError("not computed by a product with a parameter")
    if (rows.tokens < 0).any():
        raise UnreadMatricesError("computed from several tokens")
    every = [token_rows(recording, one) for one in projections]
    inputs = every[0]
    if any(one.shape != inputs.shape or not np.array_equal(one, inputs, equal_nan=True) for one in every):
        raise UnreadMatricesError("computed by several products of different inputs")
    keys = [(one.operation, column) for one in projections for column in range(one.weight.shape[1])]
    weight = np.concatenate([one.weight for one in projections], axis=1)
    ranks = find_ranks(rows.tokens)
    positions = np.array([at for _, _, at in recording.tokens])[rows.tokens]
    columns, factors, unread = dict[int, tuple[Key, ...]](), list[float](), False
    for rank in range(int(ranks.max()) + 1):
        for position in np.unique(positions[ranks == rank]).tolist():
            chosen = (ranks == rank) & (positions == position)
            matched = match_columns(rows, chosen, inputs, weight, recording.exact)
            if matched is None or (rank in columns and not have_factor(matched[1], factors[0], recording)):
                unread = True
                continue
            found = tuple(keys[column] for column in matched[0].tolist())
            factors += matched[1].tolist()
            if columns.setdefault(rank, found) != found:
                raise UnreadMatricesError("computed from different columns at different positions")
    if len(columns) <= ranks.max():
        raise UnreadMatricesError("not the columns of a parameter")
    if not have_factor(np.array(factors), factors[0], recording):
        raise UnreadMatricesError("scaled by different factors")
    return Side(columns, factors[0], unread, inputs)


def have_factor(factors: Array, factor: float, recording: Recording) -> bool:
    return bool(np.ptp([*factors, factor]) <= max(1e-6, 100 * recording.exact) * abs(factor))


def token_rows(recording: Recording, projection: Projection) -> Array:
    """Return the row that enters a projection for each token and run, `[runs tokens m]`.

    Raises:
        UnreadMatricesError: the shapes of its inputs differ between runs.
    """
    every = recording.sides(projection.operation, projection.side)
    tokens = None if every is None else recording.find_tokens(every)
    if every is None or tokens is None:
        raise UnreadMatricesError("computed by a product that differs between runs")
    width, wide = every[0].shape[-1], len(projection.weight)
    ranks = find_ranks(tokens)[0] if wide > width else np.zeros(tokens.shape[1], int)
    made = np.full((len(every), len(recording.tokens), wide), np.nan)
    for row, number in enumerate(tokens[0].tolist()):
        if number >= 0:
            start = ranks[row] * width
            made[:, number, start : start + width] = [one[0, row] for one in every]
    return made


def match_columns(rows: Rows, chosen: Array, inputs: Array, weight: Array, exact: float) -> tuple[Array, Array] | None:
    """Return which column of a weight `[m c]` produces each number of the rows, and the factors.

    Return None unless each number is one column applied to the row's token in every run, up to a factor and a constant.
    """
    made = np.concatenate([inputs[:, number] for number in rows.tokens[chosen].tolist()]) @ weight
    y = np.concatenate(
        [np.array([one[place] for one in rows.values]) for place in zip(*np.nonzero(chosen), strict=True)]
    )
    made, y = made - made.mean(axis=0), np.asarray(y - y.mean(axis=0), float)
    lengths = np.maximum(np.linalg.norm(made, axis=0), 1e-300)
    along = y.T @ (made / lengths)
    columns = np.abs(along).argmax(axis=1)
    best = along[np.arange(len(columns)), columns]
    if not np.isfinite(y).all() or (np.abs(best) < (1 - exact) * np.linalg.norm(y, axis=0)).any():
        return None
    return columns, best / lengths[columns]


# The matrices of a whole layer


@dataclass(frozen=True, eq=False)
class Matrices:
    """The weight matrices of a layer, as in `x W + b`, and its numbers of heads.

    `turns` lists which of q, k and v are rotated; `inputs` are the rows that their projections read, `[runs tokens m]`.
    """

    arrays: Arrays
    heads: int
    groups: int
    turns: frozenset[str]
    inputs: Arrays
    output: Projection | None


def with_output(recording: Recording, pairs: Sequence[Pair], arrays: dict[str, Array]) -> dict[str, Array]:
    output = find_output(recording, pairs)
    if output is None:
        return arrays
    return arrays | {"W_o": output.weight} | ({} if output.bias is None else {"b_o": output.bias})


def read_matrices(recording: Recording, pairs: Sequence[Pair]) -> Matrices:
    """Read the matrices of a layer as columns of its parameters.

    Raises:
        UnreadMatricesError: the matrices cannot be read; the message says why.
    """
    known = {
        one.operation: one
        for pair in pairs
        for rows in (pair.q, pair.k, pair.v)
        for one in find_projections(recording, recording.first.operations[rows.operation].producers[rows.place])
    }
    arrays, turns, inputs = dict[str, Array](), set[str](), dict[str, Array]()
    heads = dict[str, list[tuple[Key, ...]]]()
    for name in ("q", "k", "v"):
        heads[name] = []
        for pair in pairs:
            try:
                side = read_side(recording, getattr(pair, name))
            except UnreadMatricesError as error:
                raise UnreadMatricesError(f"{NAMES[name]} are {error}") from None
            heads[name] += [side.columns[rank] for rank in sorted(side.columns)]
            turns |= {name} if side.turns else set()
            inputs[name] = side.inputs
        used = sorted({key for columns in heads[name] for key in columns})
        arrays[f"W_{name}"] = np.array([known[place].weight[:, column] for place, column in used]).T
        biases = [bias[column] if (bias := known[place].bias) is not None else None for place, column in used]
        if any(bias is not None for bias in biases):
            arrays[f"b_{name}"] = np.array([bias or 0.0 for bias in biases])
    of_keys = len(dict.fromkeys(frozenset(columns) for columns in heads["k"]))
    return Matrices(with_output(recording, pairs, arrays), len(set(heads["q"])), of_keys, frozenset(turns), inputs,
                    find_output(recording, pairs))  # fmt: skip


NAMES = {"q": "queries", "k": "keys", "v": "values"}


def find_output(recording: Recording, pairs: Sequence[Pair]) -> Projection | None:
    """Return the output projection: the first product with a parameter after the context; None if there is none."""
    return next(products_behind(recording, {pair.second for pair in pairs}), None)


def products_behind(recording: Recording, made: set[int]) -> Iterator[Projection]:
    reached = set(made)
    for place in range(min(made) + 1, len(recording.first.operations)):
        if reached & {one for one in recording.first.operations[place].producers if isinstance(one, int)}:
            reached.add(place)
            found = read_projection(recording, place)
            if found is not None and place not in made:
                yield found


# What surrounds attention: norms before the projections, and norms and residuals after them

KINDS, EPSILONS = ("LayerNorm", "RMSNorm", "L2"), (1e-5, 1e-6, 1e-12, 1e-8, 1e-3, 0.0)


def find_surroundings(recording: Recording, found: Matrices, context: Array | None) -> Around | None:
    """Return the norms and residuals around attention, or None.

    `context` contains the context rows of the first run, `[tokens n]`, for layers without an output projection.

    Raises:
        UnreadMatricesError: something else surrounds attention.
    """
    given = tokens_given(recording)
    queries = "x" if "x" in recording.layer.inputs else "q"
    is_self = len(recording.layer.inputs) == 1
    norms = {name: find_norm(given, found.inputs[name], of, recording.exact) for name, of in NAMES.items()}
    for name in "qv" if is_self else "v":
        if not are_same_norms(norms[name], norms["k"], recording.exact):
            raise UnreadMatricesError("queries, keys and values are normalized in different ways")
    of_x, of_memory = norms["q"], norms["k"]
    before = Around(before=of_x, of_memory=None if is_self else of_memory)
    answer = answer_rows(recording)
    if found.output is not None:
        made = output_rows(recording, found.output)
    elif context is not None and answer is not None:
        made, answer = context[None], answer[:1]
    else:
        return before if str(before) else None
    if answer is None or made.shape[:2] != answer.shape[:2]:
        raise UnreadMatricesError("the output does not have one row per token")
    x = given[: len(answer), : answer.shape[1]]
    places = np.arange(answer.shape[1]).reshape(len(recording.given[0][queries]), -1)
    for order in (places.ravel(), places.T.argsort(axis=None).ravel()):  # batch first, or tokens first
        for around in find_possible(before, x, made[:, order], answer, recording.exact):
            if are_close(around.finish(x, made[:, order]), answer, recording.exact):
                return around if str(around) else None
    if found.output is None:  # the context, like the output, is compared with the definition
        return before if str(before) else None
    last = recording.first.outputs[0][0]
    end = last + 1 if isinstance(last, int) else None
    names = dict.fromkeys(one.name for one in recording.first.operations[found.output.operation + 1 : end])
    raise UnreadMatricesError(f"the operations after the output projection are not known ({', '.join(names)})")


def are_same_norms(one: Norm | None, other: Norm | None, exact: float) -> bool:
    if one is None or other is None:
        return one is other
    return (
        (one.kind, one.eps) == (other.kind, other.eps)
        and are_close(one.gain, other.gain, exact)
        and are_close(one.shift, other.shift, exact)
    )


def find_possible(before: Around, x: Array, made: Array, answer: Array, exact: float) -> Iterator[Around]:
    yield before
    if made.shape != answer.shape:
        return
    starts = [replace(before, residual=True)] if x.shape == made.shape else []
    starts += [replace(before, residual=True, of_normed=True)] if starts and before.before is not None else []
    yield from starts
    for start in (before, *starts):
        norm = fit_norm(start.finish(x, made), answer, exact)
        if norm is not None:
            yield replace(start, last=norm)
    for start in starts:
        norm = fit_norm(made, answer - (start.x(x) if start.of_normed else x), exact)
        if norm is not None:
            yield replace(start, inner=norm)


def find_norm(given: Array, inputs: Array, what: str, exact: float) -> Norm | None:
    """Return the norm between the tokens and a projection's inputs; None if the inputs are the tokens.

    Raises:
        UnreadMatricesError: there is another operation in between.
    """
    known, given = np.isfinite(inputs).all(axis=(0, 2)), given[..., : inputs.shape[-1]]
    if inputs.shape == given.shape:
        if are_close(inputs[:, known], given[:, known], exact):
            return None
        norm = fit_norm(given[:, known], inputs[:, known], exact)
        if norm is not None:
            return norm
    raise UnreadMatricesError(f"the {what} are not computed from the tokens alone")


def fit_norm(z: Array, y: Array, exact: float) -> Norm | None:
    """Fit the norm along the last axis that maps z to y, with its gain and shift; None if no norm does."""
    for kind in KINDS:
        for eps in EPSILONS:
            rows = normed(kind, z, eps).reshape(-1, z.shape[-1])
            target = y.reshape(-1, y.shape[-1])
            centred, wanted = rows - rows.mean(axis=0), target - target.mean(axis=0)
            gain = (centred * wanted).sum(axis=0) / np.maximum((centred * centred).sum(axis=0), 1e-300)
            shift = target.mean(axis=0) - gain * rows.mean(axis=0)
            if are_close(rows * gain + shift, target, exact):
                return Norm(kind, gain, shift, eps)
    return None


def output_rows(recording: Recording, output: Projection) -> Array:
    """Return the rows that the output projection produces, `[runs rows n]`, in the order of its trace."""
    rows = output_inputs(recording, output) @ output.weight
    return np.asarray(rows + (0.0 if output.bias is None else output.bias))


def output_inputs(recording: Recording, output: Projection) -> Array:
    """Return the rows that enter the output projection, `[runs rows m]`."""
    return np.array([one[0] for one in recording.sides(output.operation, output.side) or ()], float)


def answer_rows(recording: Recording) -> Array | None:
    role = "x" if "x" in recording.layer.inputs else "q"
    count = recording.given[0][role].shape[0] * recording.given[0][role].shape[1]
    every = [unlay(one.outputs[0][1], recording.layer.inputs[role]) for one in recording.traces if one.outputs]
    rows = [one.reshape(-1, one.shape[-1]) for one in every if one.ndim]
    return np.array(rows) if len(rows) == len(recording.traces) and len(rows[0]) == count else None


def are_close(one: Array, other: Array, exact: float) -> bool:
    return one.shape == other.shape and bool(
        np.abs(one - other).max(initial=0.0) <= exact * max(np.abs(other).max(), 1.0)
    )
