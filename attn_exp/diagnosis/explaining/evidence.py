"""Fresh calls of a function that answered wrongly: an explanation must reproduce their outputs too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from attn_exp.diagnosis.asking.case import Answer, Case
from attn_exp.diagnosis.asking.questions import CROSS
from attn_exp.diagnosis.calling.bound import Bound
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.code.libraries import DIGITS
from attn_exp.diagnosis.explaining.answers import Answers
from attn_exp.diagnosis.explaining.smallest import fresh
from attn_exp.diagnosis.finding import ways_to_call
from attn_exp.diagnosis.finding.ways_to_call import Seen, Tried
from attn_exp.rules.masks.array import Allowed

Pair = tuple[Case, Answer]


def evidence_of(
    caller: Caller, tried: Tried, seen: Seen, wrong: Seen, *, digits: int, broken: Sequence[str] = (),
    small: Pair | None = None,
) -> Answers:  # fmt: skip
    """Return the answers as evidence that can run fresh cases; `small` is the smallest case answered wrongly."""
    function, lost = tried.function, {case for case, _ in wrong}
    right = [pair for pair in seen if pair[0] not in lost]

    @cache  # every view calls this, and each call would build a layer again
    def ask() -> Seen:
        asked = of_one_input(wrong)
        holes = asked_of_holes(caller, function, wrong)
        return [*fresh(caller, function, asked), *([small] if small else []), *holes]

    def ask_right() -> Seen:
        return fresh(caller, function, [pair for pair in right if pair[1].output is not None])

    def ask_equal() -> Pair | None:
        return of_equal_scores(caller, function, ways_to_call.rounded(tried.case, caller), seen)

    return Answers(
        promised(wrong) + right, digits, DIGITS[caller.dtype], broken, ask=ask, ask_right=ask_right,
        ask_equal=ask_equal,
    )  # fmt: skip


def promised(wrong: Seen) -> Seen:
    """Return the wrong answers to explain; those to unsupported inputs only if there are no others."""
    return [(case, answer) for case, answer in of_one_input(wrong) if not case.unpromised] or wrong


def of_one_input(wrong: Seen) -> Seen:
    """Return the wrong answers without cross-attention, or all if there are no others: many ignore the memory."""
    return [(case, answer) for case, answer in wrong if case.rung != CROSS] or wrong


def of_equal_scores(caller: Caller, function: Bound, case: Case, seen: Seen) -> tuple[Case, Answer] | None:
    """Return a case whose scores are all equal, with its answer: equal inputs, or a layer whose W_q is 0."""
    if caller.offer.core:
        return next((pair for pair in seen if pair[0].rung == "equal inputs"), None)
    if function.inside is not None:  # the module has its own weights
        return None
    arrays = {
        name: np.zeros_like(array) if name in ("W_q", "b_q") else array for name, array in case.given.arrays.items()
    }
    other = replace(case, given=replace(case.given, arrays=arrays))
    return other, caller(other)


def asked_of_holes(caller: Caller, function: Bound, wrong: Seen) -> Seen:
    """Run the first masked case that returned NaN again, so that the cause of the NaN shows.

    The first query sees all keys, and values and the output projection are positive, so infinities stay infinite.
    """
    for case, answer in wrong:
        masks = case.recipe.rules.masks
        if answer.output is None or not np.isnan(answer.output).any() or not masks:
            continue
        other = case.with_masks(tuple(seeing_all(mask) if isinstance(mask, Allowed) else mask for mask in masks))
        if other.given.x is None:
            return [(other, caller(other))]
        if function.inside is not None:
            return []
        arrays = {name: np.abs(array) if name in OF_VALUES else array for name, array in other.given.arrays.items()}
        positive = replace(other, given=replace(other.given, x=np.abs(other.given.x), arrays=arrays))
        return [(positive, caller(positive))]
    return []


OF_VALUES = ("W_v", "b_v", "W_o", "b_o")


def seeing_all(mask: Allowed) -> Allowed:
    values = mask.values.copy()
    values[..., 0, :] = True
    return Allowed(values)
