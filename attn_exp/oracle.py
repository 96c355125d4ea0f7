"""Runs the reference on a problem, from x to the output, for as many queries as a budget allows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attn_exp import reference
from attn_exp.problem import Problem
from attn_exp.variant import Settled

Array = NDArray[Any]

BUDGET = 2_000_000
"""Multiplications of Python floats that one check may cost, about 0.2 s."""


class Answer(NamedTuple):
    """What the reference says of the checked rows: `weights` `[h r s]`, and `output` `[r m]` where there are values."""

    rows: tuple[int, ...]
    weights: Array
    output: Array | None


def ask(settled: Settled, problem: Problem) -> Answer:
    """Return the reference's answer for evenly spaced queries; all of them where the budget allows."""
    q, k, v = sources(problem)
    length = len(problem.tokens)
    rows = checked_rows(length, problem)
    weights = np.array(
        [[row_weights(settled, problem, q, k, head, row) for row in rows] for head in range(settled.head)]
    )
    if v is None:
        return Answer(rows, weights, None)
    return Answer(
        rows,
        weights,
        np.array([row_output(settled, problem, weights[:, place], v) for place in range(len(rows))]),
    )


def checked_rows(length: int, problem: Problem) -> tuple[int, ...]:
    """Choose the first, the last and evenly spaced rows between, as many as the budget pays for."""
    width = sum(each.shape[1] for each in (problem.q, problem.k, problem.v) if each is not None) or 1
    count = min(length, max(2, BUDGET // (problem.keys * width)))
    return tuple(sorted({round(place) for place in np.linspace(0, length - 1, count)}))


def sources(problem: Problem) -> tuple[Any, ...]:
    """Return q, k, v as lists, projected by the reference where that fits the budget, else as NumPy projected them."""
    if problem.x is not None and 3 * problem.x.size * problem.x.shape[1] <= BUDGET:
        x, arrays = problem.x.tolist(), {name: each.tolist() for name, each in problem.projections.items()}
        return tuple(reference.project(x, arrays[f"W_{letter}"], arrays.get(f"b_{letter}")) for letter in "qkv")
    return tuple(None if each is None else each.tolist() for each in (problem.q, problem.k, problem.v))


def row_weights(settled: Settled, problem: Problem, q: Any, k: Any, head: int, row: int) -> list[float]:
    if problem.weights is not None:
        given: list[float] = problem.weights[row].tolist()
        return given
    return reference.weights(q, k, settled.head, head, row, row, settled.rules)


def row_output(settled: Settled, problem: Problem, weights: Array, v: Any) -> list[float]:
    """Return one row of the output: the heads' contexts side by side, times W_o where the variant has one."""
    together = [
        number
        for head in range(settled.head)
        for number in reference.context(weights[head].tolist(), v, settled.head, head)
    ]
    if not (settled.output_projection and problem.projections):
        return together
    bias = problem.projections.get("b_o")
    return reference.project([together], problem.projections["W_o"].tolist(), None if bias is None else bias.tolist())[
        0
    ]
