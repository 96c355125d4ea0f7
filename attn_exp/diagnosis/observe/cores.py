"""Find attention in a trace: pairs of products with weights in between, and what they compute in `[b h t s]`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.diagnosis.observe.recording import Recording
from attn_exp.diagnosis.observe.trace import find_ancestors, find_axes, follow_labels, invert_order, scatter_by_labels

MOST_PRODUCTS = 150
"""Maximum number of products of two token-dependent arrays; beyond it, attention is split too finely to read."""


@dataclass(frozen=True, eq=False)
class Rows:
    """One input of a product in every run, `[n r k]`, and the token of each row, `[n r]`."""

    operation: int
    place: int
    values: Sequence[Array]
    tokens: Array


@dataclass(frozen=True, eq=False)
class Pair:
    """A product of queries and keys, and the later product of weights and values.

    `scores`, `weights` and `context` are those of the first run, with axes `[n t s]`, `[m t s]` and `[m t e]`.
    `places` gives for each weight the flat index of its score, `[m t s]`, or -1. `between` are the arrays from scores
    to weights, arranged like the weights. `is_transposed`: the left side of the first product gives the keys, and the
    weights are nevertheless the left side of the second.
    """

    q: Rows
    k: Rows
    v: Rows
    scores: Array
    weights: Array
    context: Array
    places: Array
    between: Sequence[Array]
    first: int
    second: int
    is_transposed: bool


def find_pairs(recording: Recording) -> list[Pair]:
    trace = recording.first
    live = [place for place, one in enumerate(trace.operations) if one.product is not None
            and recording.is_live(place, one.product.left) and recording.is_live(place, one.product.right)]  # fmt: skip
    if len(live) > MOST_PRODUCTS:
        return []
    behind = {place: [find_ancestors(trace, (producer,)) & set(live) for producer in sides_of(recording, place)]
              for place in live}  # fmt: skip
    first = [place for place in live if not any(behind[place])]
    pairs = list[Pair]()
    for place in live:
        made = [side for side, others in enumerate(behind[place]) if others]
        if len(made) == 1:
            sources = sorted(behind[place][made[0]] & set(first))
            found = (find_pair(recording, source, place, made[0]) for source in reversed(sources))
            pairs += [one for one in found if one is not None][:1]
    return pairs


def sides_of(recording: Recording, place: int) -> tuple[int | str | None, int | str | None]:
    operation = recording.first.operations[place]
    assert operation.product is not None
    return operation.producers[operation.product.left], operation.producers[operation.product.right]


def read_rows(recording: Recording, operation: int, side: int, *, is_summed: bool = False) -> Rows | None:
    """Return one input of a product (0: left) as rows `[n r k]` in every run; None if shapes differ between runs.

    `is_summed` means that rows run along the summed axis, like those of the values.
    """
    axes, every = find_axes(recording.first.operations[operation]), recording.sides(operation, side)
    if axes is None or every is None:
        return None
    every = [one.swapaxes(1, 2) for one in every] if is_summed else every
    tokens = recording.find_tokens(every)
    return None if tokens is None else Rows(operation, axes.places[side], every, tokens)


def find_factor(recording: Recording, rows: Rows) -> float:
    """Return the factor by which queries or keys were scaled since the last product."""
    factor, producer = 1.0, recording.first.operations[rows.operation].producers[rows.place]
    while isinstance(producer, int) and recording.first.operations[producer].product is None:
        operation = recording.first.operations[producer]
        live = [place for place in range(len(operation.inputs)) if recording.is_live(producer, place)]
        if not live:
            break
        given, made = operation.inputs[live[0]], operation.output
        if given.shape == made.shape and (ratio := constant_ratio(made, given)):
            factor *= ratio
        producer = operation.producers[live[0]]
    return factor


def constant_ratio(made: Array, given: Array) -> float:
    known = (given != 0) | (made != 0)
    with np.errstate(all="ignore"):
        ratios = np.asarray(made, float)[known] / np.asarray(given, float)[known]
    first = float(ratios[0]) if ratios.size else 0.0
    return first if np.isfinite(first) and np.allclose(ratios, first, rtol=1e-4, atol=0) else 0.0


def find_pair(recording: Recording, first: int, second: int, side: int) -> Pair | None:
    """Return the pair that two products form, or None; weights are the left (`side` 0) or right input of `second`."""
    trace = recording.first
    one, two = trace.operations[first], trace.operations[second]
    axes, later = find_axes(one), find_axes(two)
    if axes is None or later is None:
        return None
    shape = axes.output(one.output).shape
    numbered = np.arange(one.output.size).reshape(one.output.shape)
    labels = invert_order(axes.output(numbered)).reshape(one.output.shape)
    known = follow_labels(trace, first, labels, second)
    place = later.places[side]
    producer = two.producers[place]
    lying = known.get(producer) if isinstance(producer, int) else None
    if lying is None or lying.shape != two.inputs[place].shape:
        return None
    places = later.side(lying, side)
    left, right = (read_rows(recording, first, side) for side in (0, 1))
    values = read_rows(recording, second, 1 - side, is_summed=True)
    if left is None or right is None or values is None:
        return None
    is_turned = lies_turned(places, shape)
    scores = axes.output(one.output)
    if is_turned:
        left, right, scores = right, left, scores.swapaxes(1, 2)
        n, t, s = np.unravel_index(np.maximum(places, 0), shape)
        places = np.where(places < 0, -1, np.ravel_multi_index((n, s, t), scores.shape))
    between = [
        arrange_between(trace.operations[at].output, known[at], shape, places, is_turned) for at in sorted(known)
    ]
    context = later.output(two.output)
    context = context if side == 0 else context.swapaxes(1, 2)
    weights = later.side(np.asarray(two.inputs[place], float), side)
    is_transposed = is_turned and side == 0
    return Pair(left, right, values, scores, weights, context, places, between, first, second, is_transposed)


def arrange_between(array: Array, labels: Array, shape: Shape, places: Array, is_turned: bool) -> Array:
    whole = scatter_by_labels(array, labels, shape)
    whole = whole.swapaxes(1, 2) if is_turned else whole
    return np.where(places < 0, np.nan, whole.reshape(-1)[places])


def lies_turned(places: Array, shape: Shape) -> bool:
    """Return whether weights are transposed relative to the scores, as for `k q^T`."""
    _, rows, columns = np.unravel_index(np.maximum(places, 0), shape)

    def spread(array: Array) -> int:
        known = np.ma.masked_where(places < 0, array)
        return int(np.ma.filled(np.ma.max(known, axis=2) - np.ma.min(known, axis=2), 0).max(initial=0))

    return spread(rows) > 0 and spread(columns) == 0


# What the pairs compute, in the axes of attention


@dataclass(frozen=True, eq=False)
class Core:
    """Attention in standard axes: q `[b h t d]`, k `[b h s d]`, v `[b h s e]`, weights `[b h t s]`, context.

    q and k are unscaled, the context is `[b h t e]`. `scores` is the recorded product, `between` the arrays from there
    to the weights.
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
    rows = dict[tuple[int, int], list[tuple[int, int, int]]]()
    for at, pair in enumerate(pairs):
        for m in range(pair.weights.shape[0]):
            for row in range(pair.weights.shape[1]):
                token = token_of(recording, query_token(pair, m, row))
                rows.setdefault(token, []).append((at, m, row))
    heads = {len(one) for one in rows.values()}
    entries = sorted({entry for entry, _ in rows})
    positions = sorted({position for _, position in rows})
    if len(heads) != 1 or len(rows) != len(entries) * len(positions):
        raise MixedTokensError("queries have different numbers of heads")
    count = heads.pop()
    parts = [[[read_row(recording, pairs[at], m, row, entry)
               for at, m, row in (rows[entry, position][head] for position in positions)]
              for head in range(count)] for entry in entries]  # fmt: skip
    made = {name: stack_parts(parts, name) for name in ("q", "k", "v", "scores", "weights", "context")}
    steps = range(min(len(pair.between) for pair in pairs))
    between = [stack_parts(parts, f"between{step}") for step in steps]
    for side in ("k", "v"):
        if not (made[side] == made[side][:, :, :1]).all():
            raise MixedTokensError(f"queries of one head have different {side}")
    scaled = {side: find_factor(recording, getattr(pairs[0], side)) for side in "qk"}
    q, k = made["q"] / scaled["q"], made["k"][:, :, 0] / scaled["k"]
    return Core(q, k, made["v"][:, :, 0], made["scores"], made["weights"], made["context"], between)


def stack_parts(parts: Sequence[Sequence[Sequence[dict[str, Array]]]], name: str) -> Array:
    try:
        return np.array([[[row[name] for row in head] for head in entry] for entry in parts])
    except ValueError:
        raise MixedTokensError("queries have different numbers of keys") from None


def query_token(pair: Pair, m: int, row: int) -> int:
    known = pair.places[m, row]
    known = known[known >= 0]
    if not known.size:
        raise MixedTokensError("a row of weights is not computed from scores")
    n, t, _ = np.unravel_index(known, pair.scores.shape)
    if len(set(zip(n.tolist(), t.tolist(), strict=True))) > 1:
        raise MixedTokensError("a row of weights comes from several rows of scores")
    return int(pair.q.tokens[n[0], t[0]])


def token_of(recording: Recording, number: int) -> tuple[int, int]:
    if number < 0:
        raise MixedTokensError("rows depend on several tokens, or on none")
    return recording.tokens[number][1:]


def read_row(recording: Recording, pair: Pair, m: int, row: int, entry: int) -> dict[str, Array]:
    known = pair.places[m, row]
    n, t, s = np.unravel_index(np.maximum(known, 0), pair.scores.shape)
    first = int(np.argmax(known >= 0))
    query, of_n = pair.q.values[0][n[first], t[first]], n[first]
    columns = np.where(known >= 0, s, np.arange(len(known)))  # masked keys keep their column
    keys = [token_of(recording, int(pair.k.tokens[of_n, column])) for column in columns]
    values = [token_of(recording, int(number)) for number in pair.v.tokens[m]]
    if any(one[0] != entry for one in (*keys, *values)):
        raise MixedTokensError("keys or values belong to another example of the batch")
    order = np.argsort([at for _, at in keys], kind="stable")
    late = np.argsort([at for _, at in values], kind="stable")
    made = {"q": query, "k": pair.k.values[0][of_n, columns][order], "v": pair.v.values[0][m][late],
            "weights": pair.weights[m, row][late], "context": pair.context[m, row],
            "scores": pair.scores[of_n, t[first]][columns][order]}  # fmt: skip
    return made | {f"between{at}": one[m, row][late] for at, one in enumerate(pair.between)}
