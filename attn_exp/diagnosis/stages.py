"""A case stage by stage, what the function makes of it beside what is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array
from attn_exp.diagnosis.case import Answer, Case, differs, expected, predicted, tolerance
from attn_exp.experiment.verdict import Cells, Stage

SHOWN = ("q", "k", "v", "scores", "logits", "masked", "weights", "context", "output")


def beside(case: Case, answer: Answer, names: Sequence[str], digits: int) -> tuple[Stage, ...]:
    """Return the stages of a case up to the output.

    A function's own stages are those that it returns. Where a mistake explains its output, all others are those that
    the mistake makes.
    """
    right = expected(case)
    mine = guessed(case, answer, names, digits)
    bound = tolerance(right, digits)
    return tuple(
        stage(name, right[name], mine.get(name), bound) for name in SHOWN if name in right and is_shown(name, right)
    )


def is_shown(name: str, right: Mapping[str, Array]) -> bool:
    """Say whether a stage tells more than the one before it."""
    before = {"masked": "logits", "output": "context"}.get(name)
    return before is None or before not in right or not same(right[before], right[name])


def same(first: Array, second: Array) -> bool:
    return first.shape == second.shape and np.array_equal(first, second)


def guessed(case: Case, answer: Answer, names: Sequence[str], digits: int) -> dict[str, Array]:
    """Return the function's own stages, as far as they are known."""
    assert answer.output is not None
    last = {"output": answer.output} | ({"context": answer.output} if answer.output.ndim == 4 else {})
    try:
        recipe = mistakes.applied(names, case.recipe) if names else None
    except ValueError:  # a mistake that shows only between several calls
        recipe = None
    stages = predicted(recipe, case.given) if recipe is not None else None
    if stages is None or differs(answer.output, stages, digits):
        return last
    return stages | last


def stage(name: str, right: Array, mine: Array | None, bound: float) -> Stage:
    """Return one stage; where its own numbers have another shape they are shown all the same."""
    parted = mine is not None and not close(right, mine, bound)
    return Stage(name, cells(right), () if mine is None else cells(mine), parted)


def close(right: Array, mine: Array, bound: float) -> bool:
    """Say whether two arrays are the same but for rounding."""
    return right.shape == mine.shape and bool(
        np.allclose(right, mine, rtol=1e-6, atol=max(bound, 1e-9), equal_nan=True)
    )


def cells(array: Array) -> Cells:
    """Return an array without its batch as one matrix of texts for each head."""
    whole = array.reshape(-1, *array.shape[-2:]) if array.ndim > 1 else array.reshape(1, 1, -1)
    return tuple(tuple(tuple(cell(number) for number in row) for row in matrix) for matrix in whole)


def cell(number: Any) -> str:
    """Write a number to four digits."""
    return f"{float(number) + 0.0:.4g}".replace("inf", "∞")
