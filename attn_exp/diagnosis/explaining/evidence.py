"""What is asked anew of a function that answered wrongly: whatever explains its answers must give fresh ones too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Answer, Case
from attn_exp.diagnosis.asking.questions import CROSS, layer_cases
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.code.libraries import DIGITS
from attn_exp.diagnosis.explaining.answers import Answers
from attn_exp.diagnosis.explaining.smallest import fresh
from attn_exp.diagnosis.finding import ways_to_call
from attn_exp.diagnosis.finding.ways_to_call import Seen, Tried
from attn_exp.diagnosis.inside import inner
from attn_exp.diagnosis.matrices.bound import Bound
from attn_exp.diagnosis.reading.read_layers import no_queries, positive_values, with_matrices
from attn_exp.rules.masks.array import Allowed

Pair = tuple[Case, Answer]


def evidence_of(
    caller: Caller, tried: Tried, seen: Seen, wrong: Seen, *, digits: int, broken: Sequence[str] = (),
    small: Pair | None = None,
) -> Answers:  # fmt: skip
    """Return the answers as evidence, with what asks fresh questions; `small` is the smallest one answered wrongly."""
    function, lost = tried.function, {case for case, _ in wrong}
    right = [pair for pair in seen if pair[0] not in lost]

    @cache  # each view of the evidence asks, and a layer would be made anew for each
    def ask() -> Seen:
        asked = of_one_input(wrong)
        others = in_other_sizes(caller, function, {case.rung for case, _ in asked})
        holes = asked_of_holes(caller, function, wrong)
        return [*fresh(caller, function, asked), *others, *([small] if small else []), *holes]

    def ask_right() -> Seen:
        return fresh(caller, function, [pair for pair in right if pair[1].output is not None])

    def ask_equal() -> Pair | None:
        return of_equal_scores(caller, function, ways_to_call.rounded(tried.case, caller), seen)

    return Answers(
        promised(wrong) + right, digits, DIGITS[caller.dtype], broken, ask=ask, ask_right=ask_right,
        ask_equal=ask_equal, is_seen=cache(partial(inner.leaves_nothing_open, function.look)),
    )  # fmt: skip


def promised(wrong: Seen) -> Seen:
    """Return the wrong answers to be explained: those that nobody promised count where there are no others."""
    return [(case, answer) for case, answer in of_one_input(wrong) if not case.unpromised] or wrong


def of_one_input(wrong: Seen) -> Seen:
    """Return the wrong answers to one input, or all where there is none: many take another and make nothing of it."""
    return [(case, answer) for case, answer in wrong if case.rung != CROSS] or wrong


def in_other_sizes(caller: Caller, function: Bound, rungs: Collection[str]) -> Seen:
    """Ask these kinds of questions of a layer of the same class in other sizes, if it can be made so.

    Where names say what the matrices are in these sizes, they say it in others too.
    """
    other, inside = function.again(), function.inside
    if other is None or inside is None or other.inside is None or other.offer is None:
        return []
    is_guessed = other.roles is not None and not other.roles.sure
    found = (other.named if function.named is None and is_guessed else None) or other.inside
    if other.offer.parameters != caller.offer.parameters or bool(found.around) != bool(inside.around):
        return []
    of_other = replace(caller, function=other.call, offer=other.offer)
    cases = [case for case in layer_cases(caller.request, other.offer, True, found) if case.rung in rungs]
    return [(case, of_other(case)) for case in cases[:MOST_OTHERS]]


MOST_OTHERS = 4
"""So many questions are asked of a layer in other sizes."""


def of_equal_scores(caller: Caller, function: Bound, case: Case, seen: Seen) -> tuple[Case, Answer] | None:
    """Return a question whose scores are all equal, with its answer: equal inputs, or a layer whose W_q is 0."""
    if caller.offer.core:
        return next((pair for pair in seen if pair[0].rung == "equal inputs"), None)
    return asked_with(caller, function, case, no_queries)


def asked_of_holes(caller: Caller, function: Bound, wrong: Seen) -> Seen:
    """Ask the first question with a mask that was answered with NaN anew, so that what makes NaN shows.

    The first query sees all keys, and values and the answer of a layer are positive: infinite ones stay infinite then.
    """
    for case, answer in wrong:
        masks = case.recipe.rules.masks
        if answer.output is None or not np.isnan(answer.output).any() or not masks:
            continue
        other = case.with_masks(tuple(seeing_all(mask) if isinstance(mask, Allowed) else mask for mask in masks))
        if other.given.x is None:
            return [(other, caller(other))]
        positive = replace(other, given=replace(other.given, x=np.abs(other.given.x)))
        asked = asked_with(caller, function, positive, positive_values)
        return [asked] if asked else []
    return []


def seeing_all(mask: Allowed) -> Allowed:
    """Return a mask whose first query sees all keys."""
    values = mask.values.copy()
    values[..., 0, :] = True
    return Allowed(values)


def asked_with(
    caller: Caller, function: Bound, case: Case, change: Callable[[str, Array], Array]
) -> tuple[Case, Answer] | None:
    """Ask a layer a question with other matrices; None where those inside it cannot be others."""
    arrays = {name: change(name, array) for name, array in case.given.arrays.items()}
    other = replace(case, given=replace(case.given, arrays=arrays))
    if function.inside is None:
        return other, caller(other)
    if function.layer is None or function.roles is None:
        return None
    with with_matrices(function.layer, function.roles, change) as held_now:
        same = all(np.array_equal(array, held_now.get(name, 0.0)) for name, array in arrays.items())
        return (other, caller(other)) if same else None
