"""Find attention in a trace: pairs of products with weights in between, and what they compute in `[b h t s]`.

`find_pairs` takes a recording of a layer, and `arrange_core` turns its pairs into q, k, v, weights and context. A pair
is for example `scores = q @ k.T` and the later `weights @ v`. Loops over heads or examples give several pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array, Arrays, Shape
from attn_exp.diagnosis.observe.recording import NONE, SEVERAL, Recording
from attn_exp.diagnosis.observe.trace import (
    Axes,
    Producer,
    find_ancestors,
    find_axes,
    follow_labels,
    invert_order,
    scatter_by_labels,
)

DECIMALS = 6
"""Two vectors of a token count as one head if they agree to this many decimals; overlapping windows repeat vectors."""
MAX_PRODUCTS = 150
"""Maximum number of products of two token-dependent arrays; beyond it, attention is split too finely to read."""


@dataclass(frozen=True, eq=False)
class Rows:
    """One input of a product, as rows.

    - `input_index`: its index among the inputs of the operation.
    - `producer`: the source of the array.
    - `values`: the rows in every run, `[n r k]`.
    - `tokens`: the number of the token that each row depends on, `[n r]`.
    """

    input_index: int
    producer: Producer
    values: Sequence[Array]
    tokens: Array


@dataclass(frozen=True, eq=False)
class Pair:
    """A product of queries and keys, and the later product of weights and values.

    - `scores` `[n t s]`, `weights` `[m t s]`, `context` `[m t e]`: those of the first run.
    - `score_indices`: for each weight the flat index of its score, or -1, `[m t s]`.
    - `between`: the arrays from scores to weights, arranged like the weights.
    - `first`, `second`: the indices of the operations that compute the two products.
    - `is_transposed`: keys are on the left in the first product, although weights are on the left in the second.
    """

    q: Rows
    k: Rows
    v: Rows
    scores: Array
    weights: Array
    context: Array
    score_indices: Array
    between: Sequence[Array]
    first: int
    second: int
    is_transposed: bool


def find_pairs(recording: Recording) -> list[Pair]:
    """Return the pairs of products that compute attention: first the scores, then weights times values.

    Both inputs of each product depend on tokens. The first product of a pair depends on no other such product. In the
    second, exactly one input depends on the first: the weights.
    """
    trace = recording.first
    factors = {index: (operation.product.left, operation.product.right)
               for index, operation in enumerate(trace.operations) if operation.product is not None}  # fmt: skip
    products = [
        index
        for index, factor_indices in factors.items()
        if all(recording.is_live(index, input_index) for input_index in factor_indices)
    ]
    if len(products) > MAX_PRODUCTS:
        return []
    pairs, first_products = list[Pair](), set[int]()
    for index in products:
        producers = [trace.operations[index].producers[factor_index] for factor_index in factors[index]]
        # the earlier products on which the left factor depends, and those on which the right factor depends
        earlier = [find_ancestors(trace, (producer,)).intersection(products) for producer in producers]
        if not any(earlier):
            first_products.add(index)
        elif not all(earlier):
            side = 0 if earlier[0] else 1
            nearest_first = sorted(earlier[side] & first_products, reverse=True)
            found = (find_pair(recording, first, index, side) for first in nearest_first)
            pairs += [pair for pair in found if pair is not None][:1]  # the pair with the nearest first product
    return pairs


def read_rows(recording: Recording, index: int, side: int, *, is_summed: bool = False) -> Rows | None:
    """Return one input of a product (0: left) as rows `[n r k]` in every run; None if shapes differ between runs.

    With `is_summed`, the product sums over the rows, as it does over the rows of the values.
    """
    operation = recording.first.operations[index]
    axes, values = find_axes(operation), recording.read_sides(index, side)
    if axes is None or values is None:
        return None
    values = [array.swapaxes(1, 2) for array in values] if is_summed else values
    tokens = recording.find_tokens(values)
    input_index = axes.input_indices[side]
    return None if tokens is None else Rows(input_index, operation.producers[input_index], values, tokens)


def find_factor(recording: Recording, rows: Rows) -> float:
    """Return the factor by which queries or keys were scaled since the last product."""
    factor, producer = 1.0, rows.producer
    while isinstance(producer, int) and recording.first.operations[producer].product is None:
        operation = recording.first.operations[producer]
        live_inputs = [
            input_index for input_index in range(len(operation.inputs)) if recording.is_live(producer, input_index)
        ]
        if not live_inputs:
            break
        before, after = operation.inputs[live_inputs[0]], operation.output
        if before.shape == after.shape and (ratio := find_constant_ratio(after, before)):
            factor *= ratio
        producer = operation.producers[live_inputs[0]]
    return factor


def find_constant_ratio(numerator: Array, denominator: Array) -> float:
    """Return the common ratio of all numbers of two arrays, except 0 / 0; 0.0 if there is none."""
    is_defined = (denominator != 0) | (numerator != 0)
    with np.errstate(all="ignore"):
        ratios = np.asarray(numerator, float)[is_defined] / np.asarray(denominator, float)[is_defined]
    ratio = float(ratios[0]) if ratios.size else 0.0
    return ratio if np.isfinite(ratio) and np.allclose(ratios, ratio, rtol=1e-4, atol=0) else 0.0


def find_pair(recording: Recording, first: int, second: int, side: int) -> Pair | None:
    """Return the pair that two products form, or None if the weights of the second do not come from the first.

    The weights are the left (`side` 0) or the right input of `second`. Each score is labelled with its index; the
    labels that arrive at the weights tell from which score each weight is computed.
    """
    operations = recording.first.operations
    score_axes, value_axes = find_axes(operations[first]), find_axes(operations[second])
    if score_axes is None or value_axes is None:
        return None
    labels_of = follow_labels(recording.first, first, label_scores(score_axes), second)
    input_index = value_axes.input_indices[side]
    producer = operations[second].producers[input_index]
    weights = operations[second].inputs[input_index]
    weight_labels = labels_of.get(producer) if isinstance(producer, int) else None
    if weight_labels is None or weight_labels.shape != weights.shape:
        return None
    q, k = read_rows(recording, first, 0), read_rows(recording, first, 1)
    v = read_rows(recording, second, 1 - side, is_summed=True)
    if q is None or k is None or v is None:
        return None
    score_indices = value_axes.arrange_side(weight_labels, side)
    scores = score_axes.arrange_output(operations[first].output)
    context = value_axes.arrange_output(operations[second].output)
    between = [
        arrange_between(operations[index].output, labels, scores.shape, score_indices)
        for index, labels in sorted(labels_of.items())
    ]
    has_keys_left = are_rows_keys(score_indices, scores.shape)
    if has_keys_left:
        score_indices = transpose_score_indices(score_indices, scores.shape)
        q, k, scores = k, q, scores.swapaxes(1, 2)
    context = context if side == 0 else context.swapaxes(1, 2)  # [m e t] if the values are on the left
    weights = value_axes.arrange_side(np.asarray(weights, float), side)
    return Pair(q, k, v, scores, weights, context, score_indices, between, first, second, has_keys_left and side == 0)


def label_scores(axes: Axes) -> Array:
    """Return for each score its flat index in standard axes, in the layout of the operation's output."""
    output = axes.operation.output
    numbered = np.arange(output.size).reshape(output.shape)
    return invert_order(axes.arrange_output(numbered)).reshape(output.shape)


def arrange_between(array: Array, labels: Array, shape: Shape, score_indices: Array) -> Array:
    """Arrange an array between scores and weights like the weights.

    `labels` are the flat indices of the scores from which its elements come, and `shape` is the shape of the scores.
    """
    by_score = scatter_by_labels(array, labels, shape)
    return np.where(score_indices < 0, np.nan, by_score.reshape(-1)[score_indices])


def are_rows_keys(score_indices: Array, shape: Shape) -> bool:
    """Return whether the rows of scores are keys, as for `k q^T`: then a row of weights is a column of scores."""
    _, rows, columns = np.unravel_index(np.maximum(score_indices, 0), shape)
    is_row_constant, is_column_constant = (
        bool((np.ma.ptp(np.ma.masked_where(score_indices < 0, indices), axis=2).filled(0) == 0).all())
        for indices in (rows, columns)
    )
    return is_column_constant and not is_row_constant


def transpose_score_indices(score_indices: Array, shape: Shape) -> Array:
    """Convert flat indices into scores `[n r c]` of this shape to flat indices into their transpose `[n c r]`."""
    n, row, column = np.unravel_index(np.maximum(score_indices, 0), shape)
    return np.where(score_indices < 0, -1, np.ravel_multi_index((n, column, row), (shape[0], shape[2], shape[1])))


# Heads that are split without a transpose; the pairs alone show that


def is_split_mixed(pair: Pair) -> bool:
    """Return whether heads are mixed.

    They are if one softmax covers two heads of the same token, or if queries of one head meet several heads of keys.
    """
    heads_of_queries, heads_of_keys = find_heads(pair.q), find_heads(pair.k)
    if SEVERAL in (*pair.q.tokens.flat, *pair.k.tokens.flat) or heads_of_keys.max() > heads_of_queries.max():
        return False  # such as learned keys, or keys of two projections
    met = dict[int, set[int]]()
    for place in np.ndindex(pair.weights.shape[:2]):
        indices = pair.score_indices[place]
        n, row, column = np.unravel_index(indices[indices >= 0], pair.scores.shape)
        head_of = dict[int, int]()
        for token, head in zip(pair.k.tokens[n, column].tolist(), heads_of_keys[n, column].tolist(), strict=True):
            if token != NONE and head_of.setdefault(token, head) != head:
                return True
        for head in heads_of_queries[n, row].flat:
            met.setdefault(head, set()).update(head_of.values())
    return any(len(heads) > 1 for heads in met.values())


def find_heads(rows: Rows) -> Array:
    """Return the head of each row `[n r]`: the index of its vector among the different vectors of its token."""
    heads_by_token = dict[int, dict[bytes, int]]()
    heads = np.zeros_like(rows.tokens)
    for place, token in np.ndenumerate(rows.tokens):
        known = heads_by_token.setdefault(token, {})
        heads[place] = known.setdefault(np.round(rows.values[0][place], DECIMALS).tobytes(), len(known))
    return heads


# What the pairs compute, in the axes of attention


@dataclass(frozen=True, eq=False)
class Core:
    """Attention in standard axes.

    - `q` `[b h t d]`, `k` `[b h s d]`: queries and keys before any scaling.
    - `v`: `[b h s e]`.
    - `scores` `[b h t s]`: the recorded product of queries and keys.
    - `between`: the arrays from the scores to the weights.
    - `weights` `[b h t s]`, `context` `[b h t e]`.
    """

    q: Array
    k: Array
    v: Array
    scores: Array
    weights: Array
    context: Array
    between: Sequence[Array]


class MixedTokensError(Exception):
    """Rows of a product are not queries, keys or values of single tokens."""


def arrange_core(recording: Recording, pairs: Sequence[Pair]) -> Core:
    """Return the attention that pairs of products compute, in standard axes.

    Raises:
        MixedTokensError: a row mixes tokens, keys belong to another example, or the numbers of heads differ.
    """
    # for the example and position of each query: where the row of weights of each head is (pair, matrix, row)
    heads_of = dict[tuple[int, int], list[tuple[Pair, int, int]]]()
    for pair in pairs:
        for matrix, row in np.ndindex(pair.weights.shape[:2]):
            token = find_token(recording, find_query_number(pair, matrix, row))
            heads_of.setdefault(token, []).append((pair, matrix, row))
    counts = {len(heads) for heads in heads_of.values()}
    examples = sorted({example for example, _ in heads_of})
    positions = sorted({position for _, position in heads_of})
    if len(counts) != 1 or len(heads_of) != len(examples) * len(positions):
        raise MixedTokensError("queries have different numbers of heads")
    shape = (len(examples), counts.pop(), len(positions))
    rows_read = [
        read_row(recording, *heads_of[example, position][head], example)
        for example, head, position in itertools.product(examples, range(shape[1]), positions)
    ]
    arrays = {name: stack_rows(rows_read, name, shape) for name in ("q", "k", "v", "scores", "weights", "context")}
    steps = range(min(len(pair.between) for pair in pairs))
    between = [stack_rows(rows_read, f"between{step}", shape) for step in steps]
    for side in ("k", "v"):
        if not (arrays[side] == arrays[side][:, :, :1]).all():
            raise MixedTokensError(f"queries of one head have different {side}")
    q = arrays["q"] / find_factor(recording, pairs[0].q)
    k, v = arrays["k"][:, :, 0] / find_factor(recording, pairs[0].k), arrays["v"][:, :, 0]
    return Core(q, k, v, arrays["scores"], arrays["weights"], arrays["context"], between)


def stack_rows(rows: Sequence[Arrays], name: str, shape: Shape) -> Array:
    """Stack the arrays of this name of all rows, as `[b h t ...]`; `shape` is `[b h t]`."""
    try:
        stacked = np.array([row[name] for row in rows])
    except ValueError:
        raise MixedTokensError("queries have different numbers of keys") from None
    return stacked.reshape(*shape, *stacked.shape[1:])


def find_query_number(pair: Pair, matrix: int, row: int) -> int:
    """Return the number of the token whose query gives a row of weights."""
    score_indices = pair.score_indices[matrix, row]
    n, t, _ = np.unravel_index(score_indices[score_indices >= 0], pair.scores.shape)
    if not n.size:
        raise MixedTokensError("a row of weights is not computed from scores")
    if len(set(zip(n.tolist(), t.tolist(), strict=True))) > 1:
        raise MixedTokensError("a row of weights comes from several rows of scores")
    return int(pair.q.tokens[n[0], t[0]])


def find_token(recording: Recording, number: int) -> tuple[int, int]:
    """Return the example and position of a token."""
    if number < 0:
        raise MixedTokensError("rows depend on several tokens, or on none")
    return recording.tokens[number][1:]


def read_row(recording: Recording, pair: Pair, matrix: int, row: int, example: int) -> dict[str, Array]:
    """Return the query, keys, values, scores, weights and context for a row of weights, sorted by key position."""
    score_indices = pair.score_indices[matrix, row]
    n, t, s = np.unravel_index(np.maximum(score_indices, 0), pair.scores.shape)
    first_scored = int(np.argmax(score_indices >= 0))  # all scores of the row have the same n and t
    n, t = n[first_scored], t[first_scored]
    columns = np.where(score_indices >= 0, s, np.arange(len(score_indices)))  # masked keys keep their column
    keys = [find_token(recording, int(number)) for number in pair.k.tokens[n, columns]]
    values = [find_token(recording, int(number)) for number in pair.v.tokens[matrix]]
    if any(key_example != example for key_example, _ in (*keys, *values)):
        raise MixedTokensError("keys or values belong to another example of the batch")
    key_order = np.argsort([position for _, position in keys], kind="stable")
    value_order = np.argsort([position for _, position in values], kind="stable")
    arrays = {"q": pair.q.values[0][n, t], "k": pair.k.values[0][n, columns][key_order],
              "v": pair.v.values[0][matrix][value_order], "weights": pair.weights[matrix, row][value_order],
              "context": pair.context[matrix, row], "scores": pair.scores[n, t][columns][key_order]}  # fmt: skip
    return arrays | {f"between{step}": array[matrix, row][value_order] for step, array in enumerate(pair.between)}
