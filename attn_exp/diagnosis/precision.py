"""Which half-precision mistake an answer shows: each leaves errors in other questions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array
from attn_exp.diagnosis.case import Answer, Case, expected, predicted
from attn_exp.mistakes.precision import rounded

FLOOR = 2e-7
"""Errors below are those of float32, which is as exact as it needs to be."""
MOST_APART = 0.7
"""How far the logarithms of two errors may lie apart: people round at more or fewer places than the mistake does."""
LEAST_COMMON = 0.2
"""The least correlation with the errors of a mistake: noise, and rounding to other places, has none."""
NAMES = ("half_accumulation", "half_softmax")


def representable(answers: Sequence[Answer]) -> str:
    """Return the half type that holds every number of the answers exactly, or nothing."""
    for kind in ("bfloat16", "float16"):  # the coarser first: most of its numbers are float16 too
        outputs = [answer.output for answer in answers if answer.output is not None]
        if outputs and all(np.array_equal(rounded(output, kind), output, equal_nan=True) for output in outputs):
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

    A mistake must be exact where the answers are, and only there, and its errors must lie as theirs do. `kind` is the
    half type that the answers are rounded to: the right ones, and those of the mistakes, are rounded likewise.
    """
    asked = [(case, answer.output) for case, answer in seen if answer.output is not None]
    rights = [expected(case)["output"] for case, _ in asked]
    observed = [apart(output, right, kind) for (_, output), right in zip(asked, rights, strict=True)]
    fits = set()
    for name in NAMES:
        for change in mistakes.mistake(name).changes:
            stages = [predicted(change(case.recipe), case.given) for case, _ in asked]
            if any(wrong is None for wrong in stages):
                continue
            outputs = [wrong["output"] for wrong in stages if wrong is not None]
            made = [apart(output, right, kind) for output, right in zip(outputs, rights, strict=True)]
            fits |= {name} if alike(observed, made) else set()
    return fits.pop() if len(fits) == 1 else ""


def apart(output: Array, right: Array, kind: str) -> Array:
    """Return the errors of an output over the mean size of the right one, both rounded to a half type, or neither."""
    if output.shape != right.shape:
        return np.ones_like(right)
    one, other = (rounded(array, kind) if kind else array for array in (output, right))
    gap = np.nan_to_num(one - other, nan=1.0, posinf=1.0, neginf=-1.0)
    return np.asarray(gap / max(float(np.abs(np.nan_to_num(right)).mean()), 1e-30))


def alike(observed: Sequence[Array], made: Sequence[Array]) -> bool:
    """Say whether two lists of errors are nothing in the same questions, of a size in the others, and lie as one."""
    first, second = (np.array([float(np.abs(gap).mean()) for gap in gaps]) for gaps in (observed, made))
    inexact = second > FLOOR
    if not inexact.any() or not np.array_equal(first > FLOOR, inexact):
        return False
    if np.abs(np.log10(first[inexact] / second[inexact])).mean() > MOST_APART:
        return False
    one, other = (np.concatenate([gap.ravel() for gap in gaps]) for gaps in (observed, made))
    return float(one @ other) > LEAST_COMMON * float(np.linalg.norm(one) * np.linalg.norm(other))


def error(output: np.ndarray | None, case: Case) -> float:
    """Return the largest error of an output over the size of the right one."""
    right = expected(case)["output"]
    if output is None or output.shape != right.shape:
        return 1.0
    gap = np.nan_to_num(np.abs(output - right), nan=1.0, posinf=1.0)
    return float(gap.max(initial=0.0) / max(np.abs(np.nan_to_num(right)).max(initial=0.0), 1e-30))
