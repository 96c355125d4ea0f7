"""Which half-precision mistake an answer shows: each leaves errors in other questions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attn_exp.experiment import mistakes
from attn_exp.experiment.judging.case import Answer, Case, expected, predicted
from attn_exp.experiment.mistakes import _half as half

FLOOR = 1e-9
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


def half_mistake(seen: Sequence[tuple[Case, Answer]]) -> str:
    """Return the name of the half-precision mistake whose errors are most like those seen, question by question."""
    asked = [(case, answer) for case, answer in seen if answer.output is not None]
    observed = [error(answer.output, case) for case, answer in asked]
    scores: dict[str, float] = {}
    for name in NAMES:
        for change in mistakes.mistake(name).changes:
            stages = [predicted(change(case.recipe), case.given) for case, _ in asked]
            wrong = [
                error(None if answered is None else answered["output"], case)
                for answered, (case, _) in zip(stages, asked, strict=True)
            ]
            gap = np.abs(np.log10(np.array(observed) + FLOOR) - np.log10(np.array(wrong) + FLOOR)).mean()
            scores[name] = min(float(gap), scores.get(name, np.inf))
    best = min(scores, key=lambda name: scores[name])
    return best if scores[best] < 1.5 else ""


def error(output: np.ndarray | None, case: Case) -> float:
    """Return the largest error of an output over the size of the right one."""
    right = expected(case)["output"]
    if output is None or output.shape != right.shape:
        return 1.0
    gap = np.nan_to_num(np.abs(output - right), nan=1.0, posinf=1.0)
    return float(gap.max(initial=0.0) / max(np.abs(np.nan_to_num(right)).max(initial=0.0), 1e-30))
