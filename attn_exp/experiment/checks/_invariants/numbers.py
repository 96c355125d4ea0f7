"""Shifts that must cancel, and slopes that must be those of the formula."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp import forms
from attn_exp.experiment.checks._invariants.case import Answer, Case
from attn_exp.experiment.gradients import slope
from attn_exp.experiment.number_types import limits
from attn_exp.rules.scores.added import Added


def logit_shift(case: Case) -> Answer:
    """A constant added to every logit changes nothing, where weights share a sum.

    It is so large, and so small, that no power of e holds it: who forgets to take the largest logit off is found out.
    """
    if not case.rules.normalizer.ignores_shift or any(rule.extra(0) is not None for rule in case.rules.scores):
        name = case.rules.normalizer.name
        return f"{name} is moved by it" if case.rules.normalizer.signed else "weights do not share a sum of 1"
    if case.rules.bend_last and case.rules.scores:
        return "logits are bent after the shift"
    beyond = 1.1 * float(np.log(limits(case.settled.computed_in).max))
    answers = []
    for shift in (beyond, -beyond):
        shifted = replace(case.rules, scores=(*case.rules.scores, Added(np.array([[shift]]))))
        if refusal := forms.refuses(case.settled.form, shifted):
            return refusal
        answers.append(replace(case, rules=shifted).compute())
    return np.stack(answers), np.stack([case.compute()] * 2)


def rope_shift(case: Case) -> Answer:
    """Queries and keys moved by the same distance attend as before."""
    if case.rules.pairing is not None:
        return "scores are no products"
    relative = [position for position in case.settled.positions if position.relative]
    if not relative:
        return "no rotary positions"
    q, k = case.q, case.k
    for position in relative:  # a constant turn on top of the positions moves every token by that many places
        q, k = position.turn(q, np.full(q.shape[1], 7)), position.turn_key(k, np.full(k.shape[1], 7))
    return replace(case, q=q, k=k).compute(), case.compute()


def gradients(case: Case) -> Answer:
    """The slope along a random direction, from the formula, is that of finite differences."""
    if case.settled.member.reference != "logits":
        return "the formula is that of normalized logits"
    if case.rules.pairing is not None:
        return "scores are no products"
    if case.rules.normalizer.slope is None:
        return f"{case.rules.normalizer.name} has corners, or no formula here"
    if case.settled.computed_in != np.float64:
        return f"{case.settled.computed_in.name} is too coarse for finite differences"
    rng, step = np.random.default_rng(0), 1e-5
    along = [rng.standard_normal(array.shape) for array in (case.q, case.k, case.v)]
    ends = []
    for sign in (1, -1):
        q, k, v = (array + sign * step * way for array, way in zip((case.q, case.k, case.v), along, strict=True))
        ends.append(replace(case, q=q, k=k, v=v).compute())
    return (ends[0] - ends[1]) / (2 * step), slope(case.q, case.k, case.v, case.rules, along)
