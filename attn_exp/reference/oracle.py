"""Run the reference on a problem, from x to the output, for as many queries as a budget allows.

`answer_question` turns a `Question` into an `Answer`, step by step: `project_sides`, `encode_and_pool`,
`compute_weights`, then the context and the output of the checked queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from attn_exp import registry
from attn_exp.arrays import Array, Shape
from attn_exp.problem.problem import Heads, Problem
from attn_exp.reference import loops as reference
from attn_exp.rules.positions.position import Position, Twin
from attn_exp.rules.rules import Rules

T = TypeVar("T")
R = TypeVar("R")
Turn = Callable[[Sequence[float], int], list[float]]
Sides = tuple[Array | None, Array | None, Array | None]
"""q, k and v of stacked problems, `[n t d]`."""

BUDGET = 2_000_000
"""Maximum number of multiplications of Python floats to project x (about 0.1 s); NumPy computes larger projections."""

QUERIES = 2_000_000
"""Maximum number of multiplications for the checked queries (about 0.1 s); small problems are checked in full."""

REFERENCES = {"logits": reference.compute_weights, "kernel": reference.compute_linear_weights}
"""The function that computes the expected weights of a form, by `Form.reference`."""

SUBTRACTED = {"less_1e9": 1e9, "less_65504": 65504.0}
"""The number that these values of `Question.empty` subtract from the logits of a row that sees no key."""


@dataclass(frozen=True)
class Question:
    """The settings of a variant that determine its expected values on a given problem.

    - `weights`: how weights are computed, a name in `REFERENCES`.
    - `heads`, `rules`, `positions`: as in the variant.
    - `output_projection`: whether the output is multiplied by W_o.
    - `empty`: the weights of a row that sees no key: "zeros", "mean", "nan" or a name in `SUBTRACTED`.
    - `tiled`: whether query head i reads key/value head `i mod g`; otherwise it reads `i // (h / g)`.
    """

    weights: str
    heads: Heads
    rules: Rules
    positions: tuple[Position, ...]
    output_projection: bool
    empty: str
    tiled: bool


class Answer(NamedTuple):
    """The expected values of the checked queries.

    - `rows`: the indices of these queries.
    - `weights`: `[n h r s]`.
    - `output`: `[n r m]`, or None if the problem has no values.
    """

    rows: Shape
    weights: Array
    output: Array | None


def why_unanswerable(question: Question) -> str | None:
    """Return why nothing can be checked, or None if the reference has an answer."""
    missing = [f"position={registry.name_of(position)}" for position in question.positions if position.twin() is None]
    if question.rules.normalizer.twin is None:
        missing.append(f"normalizer={question.rules.normalizer.name}")
    return f"nothing was checked, since {missing[0]} has no scalar version" if missing else None


def list_twins(question: Question) -> list[Twin]:
    return [twin for position in question.positions if (twin := position.twin()) is not None]


def answer_question(question: Question, problem: Problem, sides: Sides | None = None) -> Answer:
    """Return the expected values of stacked problems, for as many evenly spaced queries as the budget allows.

    Call it only if `why_unanswerable` returns None. `sides` are q, k and v, if they are projected already.
    """
    q, k, v = encode_and_pool(question, project_sides(question, problem) if sides is None else sides, problem.past)
    has_projection, heads = question.output_projection and problem.projections, question.heads
    rows = choose_rows(problem, problem.projections["W_o"][0].size if has_projection else 0)
    if (weights_given := problem.weights) is None:
        weights = compute_weights(question, q, k, rows)
    else:
        weights = np.repeat(weights_given[:, None, list(rows)], heads.query, axis=1)
    if v is None:
        return Answer(rows, weights, None)
    columns = split_heads(question, v, heads.shared).swapaxes(-1, -2)
    row_weights = [weights[:, :, number, None] for number in range(len(rows))]
    # a key with zero weight adds nothing, even if its value is NaN
    context = [sum_exactly(np.where(row == 0, 0.0, row * columns)) for row in row_weights]
    output = np.stack(context, axis=1).reshape(len(weights), len(rows), -1)
    return Answer(rows, weights, project(output, problem, "o") if has_projection else output)


def compute_weights(question: Question, q: Array | None, k: Array | None, rows: Shape) -> Array:
    """Return the weights `[n h r s]` of these queries."""
    queries, keys = split_heads(question, q, question.heads.query), split_heads(question, k, question.heads.shared)
    dots = np.stack([sum_exactly(queries[:, :, row, None] * keys) for row in rows], axis=2).tolist()
    problems = zip(queries.tolist(), keys.tolist(), dots, strict=True)
    return np.array(
        [
            [
                [
                    compute_row_weights(question, head_q, head_k, row_dots, head, row)
                    for row, row_dots in zip(rows, head_dots, strict=True)
                ]
                for head, (head_q, head_k, head_dots) in enumerate(zip(*problem_arrays, strict=True))
            ]
            for problem_arrays in problems
        ]
    )


def split_heads(question: Question, side: Any, count: int) -> Array:
    """Return the head that each query head reads, `[n h s d]`; `side` has `count` heads side by side."""
    heads = question.heads.query
    split = side.reshape(*side.shape[:2], count, -1).swapaxes(1, 2)
    return np.asarray(split[:, [head % count if question.tiled else head * count // heads for head in range(heads)]])


def choose_rows(problem: Problem, output_cost: int) -> Shape:
    """Choose which queries to check: the first, the last, and evenly spaced ones between them, as the budget allows.

    `output_cost` is the number of multiplications of the output projection for one query.
    """
    width = sum(side.shape[2] for side in (problem.q, problem.k, problem.v) if side is not None) or 1
    length = len(problem.tokens)
    count = min(length, max(2, QUERIES // (problem.keys * width + output_cost)))
    return tuple(range(length)) if count == length else tuple(map(round, np.linspace(0, length - 1, count)))


def encode_and_pool(question: Question, sides: Sides, past: int) -> Sides:
    """Return q, k and v with their positions encoded and the key/value heads pooled, by the reference's own loops.

    The positions of queries start after the `past` tokens if there are any, otherwise at the offset of the masks.
    """
    (q, k, v), heads = sides, question.heads
    if heads.shared < heads.given:
        k, v = (
            change_each(side, lambda rows: [reference.pool_key_heads(row, heads) for row in rows]) for side in (k, v)
        )
    for twin in list_twins(question):
        offset = past if past else int(question.rules.offset)
        q = change_each(q, partial(encode_rows, count=heads.query, turn=twin.turn, offset=offset))
        k = change_each(k, partial(encode_rows, count=heads.shared, turn=twin.turn_key, offset=0))
    return q, k, v


def change_each(side: Array | None, change: Callable[[Any], list[list[float]]]) -> Any:
    return None if side is None else np.array([change(rows) for rows in side.tolist()])


def project_sides(question: Question, problem: Problem) -> Sides:
    """Return q, k and v, projected by the reference if that fits the budget, else as NumPy projected them.

    If a position changes x, the reference must project them, whatever it costs.
    """
    changes_x = any(position.changes_x for position in question.positions)
    cost = sum(side[0].size * side.shape[2] for side in (problem.x, problem.memory) if side is not None)
    if problem.x is None or not (changes_x or 3 * cost <= BUDGET):
        return problem.q, problem.k, problem.v
    x, memory = (change_each(side, partial(embed_positions, question)) for side in (problem.x, problem.memory))
    keys = x if memory is None else memory
    return project(x[:, problem.past :], problem, "q"), project(keys, problem, "k"), project(keys, problem, "v")


def project(vectors: Any, problem: Problem, letter: str) -> Array:
    """Return `y_ij = sum_m x_im W_mj + b_j` of each problem."""
    weight, bias = problem.projections[f"W_{letter}"], problem.projections.get(f"b_{letter}")
    products = sum_exactly(vectors[:, :, None] * weight.swapaxes(-1, -2)[:, None])
    return products if bias is None else products + bias[:, None]


def sum_exactly(terms: Array) -> Array:
    """Sum along the last axis as `math.fsum` does: each result is the float nearest to the exact sum.

    Each term is split into its leading bits and a rest, and the two are summed separately. The sum of the leading bits
    is exact. If the rounding error of the rest may change the result, `fsum` is used.

    Source: Rump, Ogita and Oishi 2008, "Accurate Floating-Point Summation, Part I", section 3.
    """
    with np.errstate(all="ignore"):
        anchor = np.ldexp(2.0, np.frexp(np.abs(terms).sum(axis=-1, keepdims=True))[1])
        leading = (terms + anchor) - anchor
        rest = terms - leading
        error = np.abs(rest).sum(axis=-1) * (terms.shape[-1] * np.finfo(np.float64).eps)
        sums, highest = (leading.sum(axis=-1) + (rest.sum(axis=-1) + shift) for shift in (-error, error))
    is_undecided = ~(sums == highest)  # also True for NaN
    sums[is_undecided] = list(map(math.fsum, terms[is_undecided].tolist()))
    return np.asarray(sums + 0.0)  # no negative zero


def embed_positions(question: Question, vectors: list[list[float]]) -> list[list[float]]:
    for twin in list_twins(question):
        vectors = [twin.embed(numbers, position) for position, numbers in enumerate(vectors)]
    return vectors


def encode_rows(rows: Any, count: int, turn: Turn, offset: int) -> list[list[float]]:
    """Encode the position of each row in all of its heads; a row has `count` heads side by side."""
    return [
        [number for head in range(count) for number in turn(reference.slice_head(numbers, count, head), row + offset)]
        for row, numbers in enumerate(rows)
    ]


def compute_row_weights(question: Question, q: Any, k: Any, dots: Any, head: int, row: int) -> list[float]:
    """Return the weights of one query, from the q and k of its head; if it sees no key, as `question.empty` says."""
    query_place = question.heads.query, head, row, row + int(question.rules.offset)
    weights = REFERENCES[question.weights](q, k, *query_place, question.rules, dots=dots)
    if any(weights) or reference.sees_key(len(k), *query_place, len(q), question.rules):
        return weights
    if question.empty in SUBTRACTED:
        unmasked, subtracted = replace(question.rules, masks=()), SUBTRACTED[question.empty]
        return reference.compute_weights(q, k, *query_place, unmasked, dots=dots, subtracted=subtracted)
    filler = {"zeros": 0.0, "mean": 1 / (len(weights) or 1), "nan": math.nan}[question.empty]
    return [filler] * len(weights)


def answer_all(questions: Mapping[str, Question], problem: Problem) -> dict[str, Answer]:
    """Return the answer to each question by name, except for questions that the reference cannot answer.

    All arrays have a first axis for stacked problems. Equal questions are answered only once, and questions that encode
    the same positions in x share one projection of x.
    """
    answered: list[tuple[Question, Answer]] = []
    projections: list[tuple[tuple[Position, ...], Sides]] = []
    expected = {}
    for name, question in questions.items():
        if not why_unanswerable(question):
            x_positions = tuple(position for position in question.positions if position.changes_x)
            sides = get_or_make(projections, x_positions, partial(project_sides, question, problem))
            expected[name] = get_or_make(answered, question, partial(answer_question, question, problem, sides))
    return expected


def get_or_make(cache: list[tuple[T, R]], key: T, make: Callable[[], R]) -> R:
    """Return the cached result of an equal key, or compute and cache it."""
    for other, result in cache:
        if is_same(other, key):
            return result
    cache.append((key, make()))
    return cache[-1][1]


def is_same(left: Any, right: Any) -> bool:
    """Compare types and contents of two settings, rules or questions; values that cannot be compared are different."""
    if left is right or type(left) is not type(right):
        return left is right
    if isinstance(left, np.ndarray):
        return np.array_equal(left, right)
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(map(is_same, left, right))
    if isinstance(left, dict):
        return is_same(list(left.items()), list(right.items()))
    if is_dataclass(left):  # a user's class may hold more than its fields
        return hasattr(left, "__dict__") and is_same(vars(left), vars(right))
    return bool(left == right)
