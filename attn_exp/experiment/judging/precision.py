"""Which half-precision mistake an answer shows: each leaves errors in other questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from attn_exp.experiment import mistakes
from attn_exp.experiment.judging.case import Answer, Case, expected, predicted
from attn_exp.experiment.mistakes import _half as half

FLOOR = 2e-7
"""Errors below are those of float32, which is as exact as it needs to be."""
MOST_APART = 0.7
"""How far the logarithms of two errors may lie apart: people round at more or fewer places than the mistake does."""
ROUGH = 0.5
NAMES = ("half_accumulation", "half_softmax")


def representable(answers: Sequence[Answer]) -> str:
    """Return the half type that holds every number of the answers exactly, or nothing."""
    for kind in ("bfloat16", "float16"):  # the coarser first: most of its numbers are float16 too
        outputs = [answer.output for answer in answers if answer.output is not None]
        if outputs and all(np.array_equal(half.rounded(output, kind), output, equal_nan=True) for output in outputs):
            return kind
    return ""


def only_rounded(seen: Sequence[tuple[Case, Answer]], digits: int) -> bool:
    """Say whether the answers are the right ones, rounded once to so many bits."""
    for case, answer in seen:
        if answer.output is None:
            continue
        right = expected(case)["output"]
        if right.shape != answer.output.shape:
            return False
        if not np.allclose(answer.output, right, rtol=0.75 * 2.0 ** (1 - digits), atol=1e-7, equal_nan=True):
            return False
    return True


def half_mistake(seen: Sequence[tuple[Case, Answer]], kind: str = "") -> str:
    """Return the half-precision mistake whose errors are like those seen, question by question; none where two are.

    A mistake must be exact where the answers are, and only there. `kind` is the half type that the answers are rounded
    to: the right ones, and those of the mistakes, are rounded likewise.
    """
    asked = [(case, answer.output) for case, answer in seen if answer.output is not None]
    observed = np.array([apart(output, expected(case)["output"], kind) for case, output in asked])
    gaps: dict[str, float] = {}
    for name in NAMES:
        for change in mistakes.mistake(name).changes:
            stages = [(predicted(change(case.recipe), case.given), expected(case)["output"]) for case, _ in asked]
            made = np.array([1.0 if wrong is None else apart(wrong["output"], right, kind) for wrong, right in stages])
            if np.array_equal(made > FLOOR, observed > FLOOR) and (made > FLOOR).any():
                inexact = made > FLOOR
                gap = float(np.abs(np.log10(observed[inexact] / made[inexact])).mean())
                gaps[name] = min(gap, gaps.get(name, np.inf))
    near = [name for name, gap in gaps.items() if gap < MOST_APART]
    return near[0] if len(near) == 1 else ""


def apart(output: np.ndarray, right: np.ndarray, kind: str) -> float:
    """Return the mean error of an output over the mean size of the right one, both rounded to a half type or as is."""
    if output.shape != right.shape:
        return 1.0
    one, other = (half.rounded(array, kind) if kind else array for array in (output, right))
    gap = np.nan_to_num(np.abs(one - other), nan=1.0, posinf=1.0)
    return float(gap.mean() / max(np.abs(np.nan_to_num(right)).mean(), 1e-30))


def rough(call: Callable[[Case], Answer], case: Case) -> bool:
    """Say whether errors are those of rounding: inputs near by have quite others; those of a wrong number are alike."""
    errors = []
    for seed in range(2):
        near = jostled(case, seed)
        output, right = call(near).output, expected(near)["output"]
        if output is None or output.shape != right.shape:
            return False
        errors.append(np.nan_to_num(output - right))
    size = max(float(np.linalg.norm(error)) for error in errors)
    return float(np.linalg.norm(errors[0] - errors[1])) > ROUGH * max(size, 1e-300)


def jostled(case: Case, seed: int) -> Case:
    """Return the case with every input moved by up to two places of the coarsest half type."""
    rng = np.random.default_rng([seed, 14])
    sides = {side: array for side in ("q", "k", "v", "x") if (array := getattr(case.given, side)) is not None}
    moved = {side: array * (1 + rng.uniform(-1, 1, array.shape) * 2.0**-7) for side, array in sides.items()}
    return replace(case, given=replace(case.given, **moved))


def error(output: np.ndarray | None, case: Case) -> float:
    """Return the largest error of an output over the size of the right one."""
    right = expected(case)["output"]
    if output is None or output.shape != right.shape:
        return 1.0
    gap = np.nan_to_num(np.abs(output - right), nan=1.0, posinf=1.0)
    return float(gap.max(initial=0.0) / max(np.abs(np.nan_to_num(right)).max(initial=0.0), 1e-30))
