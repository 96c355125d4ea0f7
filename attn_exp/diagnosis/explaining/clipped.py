"""Logits clipped at a number far above usual ones, so that only large logits are wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Answer, Case, differs, expected, predicted
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.explaining.answers import LARGE
from attn_exp.diagnosis.explaining.precision import error
from attn_exp.diagnosis.recipes.candidates import Candidate, Seen, everywhere
from attn_exp.diagnosis.recipes.fitted import fitted
from attn_exp.forms.pipeline import Step
from attn_exp.mistakes.mistake import around

STEPS, SEEN, USUAL, MOST = 30, 0.05, 32.0, 1000.0
"""Bisection steps; relative error at which clipping shows; smallest clip value above usual logits; logit whose exp
overflows in every dtype."""


def clipped_at(
    caller: Caller, wrong: Sequence[tuple[Case, Answer]], digits: int, ask: Callable[[], Seen]
) -> float | None:
    """Return the number at which logits are clipped, or None unless clipping reproduces all answers, fresh ones too.

    Bisects over the scale of one input until only a few weights are affected and show the clipped logits.
    """
    if not wrong or any(case.rung != LARGE or answer.output is None for case, answer in wrong):
        return None
    first, low, high = wrong[0][0], 0.0, 1.0
    for _ in range(STEPS):
        middle = times(first, (low + high) / 2)
        low, high = ((low + high) / 2, high) if gap(caller(middle), middle) < SEEN else (low, (low + high) / 2)
    case = times(first, high)
    output = caller(case).output
    for stage, ends in product(STAGES, (-1.0, -np.inf)):
        number = None if output is None else number_of(case, output, partial(clips, stage=stage, ends=ends), stage)
        change = None if number is None else clips(number, stage, ends)[0].change
        made = (
            [(predicted(change(one), one.given), answer.output) for one, answer in [*wrong, *ask()]] if change else []
        )
        if made and all(said is not None and own is not None and not differs(said, own, digits) for own, said in made):
            return number
    return None


STAGES = {"logits": "scaled", "scores": "score"}
"""The stage that is clipped, and the step that computes it."""


def number_of(case: Case, output: Array, made: Callable[[float], list[Candidate]], stage: str) -> float | None:
    """Return the clip value, to six digits, that reproduces an output, if it exceeds usual logits."""
    stages = expected(case)
    largest, of_logits = (float(np.abs(stages[one]).max()) for one in (stage, "logits"))
    if largest < USUAL or of_logits > MOST or not np.isfinite(output).all():  # overflow is not clipping
        return None
    starts = np.arange(USUAL, largest, largest / of_logits).tolist()  # start values one logit apart
    number = fitted(case, output, made, starts)
    return None if number is None or number < USUAL else float(f"{number:.6g}")


def gap(answer: Answer, case: Case) -> float:
    """Return the error of an answer relative to the largest expected number."""
    return np.inf if answer.output is None else error(answer.output, case)


def clips(most: float, stage: str, ends: float) -> list[Candidate]:
    """Return one candidate that clips a stage to `[ends * most, most]`."""
    wrong = partial(clipped, least=ends * most, most=most)
    return [Candidate(("clipped",), everywhere(around(STAGES[stage], wrong)))]


def clipped(step: Step, *given: Any, least: float, most: float) -> Any:
    return np.clip(step(*given), least, most)


def times(case: Case, factor: float) -> Case:
    """Return the case with its queries, or a layer's x, multiplied by a number."""
    side = "x" if case.given.x is not None else "q"
    return replace(case, given=replace(case.given, **{side: factor * getattr(case.given, side)}))
