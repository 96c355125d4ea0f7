"""What a mask fills in where no softmax takes it away: that number is mixed with the values, or is in their sums."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.candidates import Candidate, Seen, everywhere
from attn_exp.diagnosis.case import Answer, Case, predicted
from attn_exp.forms.pipeline import At
from attn_exp.mistakes.masks import late
from attn_exp.mistakes.mistake import Change, instead, together

NO_SOFTMAX, BY_SUM = "no_softmax", "sum_normalized"
LOWEST = (float(np.finfo(np.float64).min), float(np.finfo(np.float32).min), float(np.finfo(np.float16).min))
FILLS = (-np.inf, *LOWEST, -1e4, -1e5, -1e6, -1e8, -1e9, -1e10, -1e12, -1e15, -1e18, -1e20, -1e30, 0.0)
"""Numbers that are filled in before a softmax, where it makes nothing of them."""


def fills_of_raw_logits(seen: Seen) -> Iterator[Candidate]:
    """Yield logits used as weights, or divided by their sum, with the fill that the first answer with a mask shows."""
    for case, answer in seen:
        if answer.output is not None and hides_any(case):
            yield from as_weights(case, answer)
            fits = (number for number in FILLS if is_given(case, answer, by_sum(number)))
            yield from (Candidate((BY_SUM,), everywhere(by_sum(number)), fitted=True) for number in fits)
            return


def hides_any(case: Case) -> bool:
    """Say whether a question hides a key from any query."""
    stages = predicted(case.recipe, case.given) if case.recipe.rules.masks else None
    return stages is not None and bool(np.isneginf(stages["masked"]).any())


def as_weights(case: Case, answer: Answer) -> Iterator[Candidate]:
    """Yield logits used as weights with each fill that gives an answer: it is a line in the number that is filled in.

    What is added to the logits there is another line.
    """
    for is_added in (False, True):
        numbers = [number for number in (-np.inf, *LOWEST, on_the_line(case, answer, is_added)) if number is not None]
        for number in numbers:
            if is_given(case, answer, raw(number, is_added)):
                yield Candidate((NO_SOFTMAX,), everywhere(raw(number, is_added)), fitted=True)
                break


def on_the_line(case: Case, answer: Answer, is_added: bool) -> float | None:
    """Return the number with which logits that are used as weights are nearest to an answer, or None."""
    zero, one = (predicted(raw(number, is_added)(case.recipe), case.given) for number in (0.0, 1.0))
    if zero is None or one is None or answer.output is None or zero["output"].shape != answer.output.shape:
        return None
    slope, gap = one["output"] - zero["output"], answer.output - zero["output"]
    number = float((slope * gap).sum() / max((slope * slope).sum(), 1e-300))
    return number if np.isfinite(number) else None


def is_given(case: Case, answer: Answer, change: Change) -> bool:
    """Say whether an answer is that of a changed recipe, but for rounding and for what is no number."""
    stages = predicted(change(case.recipe), case.given)
    if stages is None or answer.output is None or stages["output"].shape != answer.output.shape:
        return False
    return bool(np.allclose(stages["output"], answer.output, rtol=1e-3, equal_nan=True))


def raw(number: float, is_added: bool) -> Change:
    """Return the change that uses logits as weights, with a number filled in or added where the mask forbids.

    It is put there behind what stands for the softmax, as no power is taken of it.
    """
    return together(late(number, added=is_added), instead(normalize=lambda at, masked: masked))


def by_sum(number: float) -> Change:
    """Return the change that divides logits by their sum, with a number filled in where the mask forbids."""

    def normalize(at: At, masked: Array) -> Array:
        kept = np.where(np.isneginf(masked), number, masked)
        return np.asarray(kept / kept.sum(axis=-1, keepdims=True))

    return instead(normalize=normalize)
