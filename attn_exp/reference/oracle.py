"""Runs the reference on a problem, from x to the output, for as many queries as a budget allows."""

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

BUDGET = 2_000_000
"""Multiplications of Python floats that the projection of x may cost, about 0.1 s; NumPy projects what costs more."""

QUERIES = 2_000_000
"""Multiplications that the checked queries may cost, about 0.1 s; all are checked where they cost no more."""

REFERENCES = {"logits": reference.weights, "kernel": reference.linear_weights}
"""The function that computes the expected weights of a form, by `Form.reference`."""

TAKEN = {"less_1e9": 1e9, "less_65504": 65504.0}
"""The number subtracted from the scores of a row without keys, by `Question.empty`."""


@dataclass(frozen=True)
class Question:
    """What determines an answer besides the problem: heads, positions, rules, and how weights are computed.

    `weights` is a name in `REFERENCES`; `empty` is what a row without keys gives; `tiled` means that query head i reads
    key/value head `i mod g`.
    """

    weights: str
    heads: Heads
    rules: Rules
    positions: tuple[Position, ...]
    output_projection: bool
    empty: str
    tiled: bool


class Answer(NamedTuple):
    """The expected values of the checked rows: `weights` `[h r s]`, and `output` `[r m]` where there are values.

    Those of several problems have a first axis for the problems.
    """

    rows: Shape
    weights: Array
    output: Array | None


def silent(question: Question) -> str | None:
    """Return why nothing can be checked, or None if the reference has an answer."""
    missing = [f"position={registry.name_of(position)}" for position in question.positions if position.twin() is None]
    if question.rules.normalizer.twin is None:
        missing.append(f"normalizer={question.rules.normalizer.name}")
    return f"nothing was checked, since {missing[0]} brings no scalar twin" if missing else None


def twins(question: Question) -> list[Twin]:
    return [twin for position in question.positions if (twin := position.twin()) is not None]


def ask(question: Question, problem: Problem, sides: tuple[Any, ...] | None = None) -> Answer:
    """Return the expected values for as many evenly spaced queries as the budget allows.

    Call it only where `silent` returns None. `sides` are q, k, v where they are projected already.
    """
    q, k, v = placed(question, projected(question, problem) if sides is None else sides, problem.past)
    mixing, shares = problem.projections if question.output_projection else {}, question.heads
    rows = choose_rows(problem, mixing["W_o"].size if mixing else 0)
    of_head = enumerate(
        zip(split_heads(question, q, shares.query), split_heads(question, k, shares.shared), strict=True)
    )
    weights = [[compute_row_weights(question, problem, *both, head, row) for row in rows] for head, both in of_head]
    if v is None:
        return Answer(rows, np.array(weights), None)
    columns = [list(zip(*values, strict=True)) for values in split_heads(question, v, shares.shared)]
    output = [
        [number for both in zip(of_row, columns, strict=True) for number in reference.context(*both)]
        for of_row in zip(*weights, strict=True)
    ]
    if mixing:
        bias = mixing.get("b_o")
        output = reference.project(output, mixing["W_o"].tolist(), None if bias is None else bias.tolist())
    return Answer(rows, np.array(weights), np.array(output))


def split_heads(question: Question, side: Any, count: int) -> list[Any]:
    """Return, for each query head, the rows `[s d]` of the head that it reads, of `count` side by side."""
    heads = question.heads.query
    apart = [[reference.part(row, count, head) for row in side or ()] for head in range(count)]
    return [apart[head % count if question.tiled else head * count // heads] for head in range(heads)]


def choose_rows(problem: Problem, mixing: int) -> Shape:
    """Choose the first, the last and evenly spaced rows between, as many as the budget allows.

    `mixing` is the number of multiplications per row of the output projection.
    """
    width = sum(side.shape[1] for side in (problem.q, problem.k, problem.v) if side is not None) or 1
    length = len(problem.tokens)
    count = min(length, max(2, QUERIES // (problem.keys * width + mixing)))
    return tuple(range(length)) if count == length else tuple(map(round, np.linspace(0, length - 1, count)))


def placed(question: Question, sides: tuple[Any, ...], past: int = 0) -> tuple[Any, ...]:
    """Return q, k, v as lists, with positions encoded and heads pooled by the reference's own code.

    Tokens after a `past` get the positions after it, whatever offset the masks use.
    """
    (q, k, v), shares = sides, question.heads
    if shares.shared < shares.given:
        k, v = (None if side is None else [reference.shared(row, shares) for row in side] for side in (k, v))
    for twin in twins(question):
        q = turned(q, shares.query, twin.turn, past if past else int(question.rules.offset))
        k = turned(k, shares.shared, twin.turn_key, 0)
    return q, k, v


def projected(question: Question, problem: Problem) -> tuple[Any, ...]:
    """Return q, k, v as lists: projected by the reference if that fits the budget, else by NumPy."""
    embedded = any(position.changes_x for position in question.positions)
    cost = sum(side.size * side.shape[1] for side in (problem.x, problem.memory) if side is not None)
    small = problem.x is not None and 3 * cost <= BUDGET
    if problem.x is None or not (small or embedded):
        return tuple(None if side is None else side.tolist() for side in (problem.q, problem.k, problem.v))
    arrays = {name: array.tolist() for name, array in problem.projections.items()}
    whole = marked(question, problem.x.tolist())
    new = [numbers for place, numbers in enumerate(whole) if place >= problem.past]
    keys = whole if problem.memory is None else marked(question, problem.memory.tolist())
    return tuple(
        reference.project(vectors, arrays[f"W_{letter}"], arrays.get(f"b_{letter}"))
        for letter, vectors in (("q", new), ("k", keys), ("v", keys))
    )


def marked(question: Question, vectors: list[list[float]]) -> list[list[float]]:
    for twin in twins(question):
        vectors = [twin.embed(numbers, place) for place, numbers in enumerate(vectors)]
    return vectors


def turned(sides: Any, count: int, turn: Turn, offset: int) -> list[list[float]]:
    """Encode each row's position in every one of `count` heads that lie side by side."""
    return [
        [number for head in range(count) for number in turn(reference.part(numbers, count, head), row + offset)]
        for row, numbers in enumerate(sides)
    ]


def compute_row_weights(question: Question, problem: Problem, q: Any, k: Any, head: int, row: int) -> list[float]:
    """Return the weights of one query, with the q and k of its head; `question.empty` fills those that see no key."""
    if problem.weights is not None:
        given: list[float] = problem.weights[row].tolist()
        return given
    weigh, position = REFERENCES[question.weights], row + int(question.rules.offset)
    weights = weigh(q, k, question.heads.query, head, row, position, question.rules)
    if any(weights) or reference.sees(len(k), question.heads.query, head, row, position, len(q), question.rules):
        return weights
    if question.empty in TAKEN:
        bare, taken = replace(question.rules, masks=()), TAKEN[question.empty]
        return reference.weights(q, k, question.heads.query, head, row, position, bare, taken=taken)
    filler = {"zeros": 0.0, "mean": 1 / (len(weights) or 1), "nan": math.nan}[question.empty]
    return [filler] * len(weights)


def answers(questions: Mapping[str, Question], problems: Sequence[Problem]) -> dict[str, Answer]:
    """Return the answer to each question by its name, except those that the reference cannot answer.

    The problems have the same shapes; their answers are stacked along a first axis. Equal questions are answered once,
    and x is projected once for all that encode the same positions in it.
    """
    known: list[tuple[Question, Answer]] = []
    projections: list[tuple[tuple[Position, ...], list[Any]]] = []
    expected = {}
    for name, question in questions.items():
        if not silent(question):
            marks = tuple(mark for mark in question.positions if mark.changes_x)
            sides = cached(projections, marks, partial(project_all, question, problems))
            expected[name] = cached(known, question, partial(ask_all, question, problems, sides))
    return expected


def project_all(question: Question, problems: Sequence[Problem]) -> list[Any]:
    return [projected(question, problem) for problem in problems]


def ask_all(question: Question, problems: Sequence[Problem], sides: Sequence[Any]) -> Answer:
    each = [ask(question, *both) for both in zip(problems, sides, strict=True)]
    outputs = [answer.output for answer in each if answer.output is not None]
    return Answer(each[0].rows, np.stack([answer.weights for answer in each]), np.stack(outputs) if outputs else None)


def cached(known: list[tuple[T, R]], asked: T, make: Callable[[], R]) -> R:
    """Return the cached result of an equal question, or compute and cache it."""
    for other, made in known:
        if is_same(other, asked):
            return made
    known.append((asked, make()))
    return known[-1][1]


def is_same(one: Any, other: Any) -> bool:
    """Compare types and contents of two settings, rules or questions; what cannot be compared is not the same."""
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(is_same(one[key], other[key]) for key in one)
    if is_dataclass(one):  # a user's class may hold more than its fields
        return hasattr(one, "__dict__") and is_same(vars(one), vars(other))
    return bool(one == other)
