"""Locate an unexplained mistake: the first stage that differs from attention, and how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Case, Seen, expected
from attn_exp.diagnosis.asking.questions import ABOUT_MASKS, MASKS_OF_MORE
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.explaining.answers import LARGE
from attn_exp.diagnosis.finding.ways_to_call import rounded
from attn_exp.diagnosis.recipes.candidates import only_there

NOTHING = "no known mistake explains it"
EQUAL = "equal inputs"
CLOSE = 1e-5
SIZED = (LARGE, EQUAL, "tiny inputs", "whole numbers")
"""Cases whose weights are all equal, or 0 and 1."""


class Located(NamedTuple):
    """What is known about wrong answers that no mistake explains.

    `stage` is the first stage that differs: `logits` (for everything that produces them), `masked`, `weights` or
    `context`; empty if unknown. `said` is one or more sentences for the user.
    """

    stage: str = ""
    said: str = ""


def located(caller: Caller, seen: Seen, wrong: Seen) -> Located:
    """Say which cases are wrong, and at which stage the mistake must lie."""
    outputs = [answer.output for _, answer in seen if answer.output is not None and answer.output.size]
    for said, is_so in (("zeros", lambda output: not output.any()), ("NaN", lambda output: np.isnan(output).all())):
        if outputs and all(map(is_so, outputs)):
            return Located("", f"{said} for every input; {NOTHING}")
    rungs = list(dict.fromkeys(case.rung for case, _ in wrong))
    right = dict.fromkeys(case.rung for case, answer in seen if case.rung not in rungs and answer.output is not None)
    held, where = f", and right in {', '.join(right)}" if right else "", only_there(wrong, seen)
    alone = f". It is wrong only where {where}" if where else ""
    holed = [case for case, answer in wrong if answer.output is not None and np.isnan(answer.output).any()]
    has_plain = any(not case.recipe.rules.masks and answer.output is not None for case, answer in seen)
    is_masked = holed and has_plain and rungs != [LARGE] and all(case.recipe.rules.masks for case in holed)
    told = Located("masked", ". NaN appears only with masks") if is_masked else locate_by_cases({*rungs}, seen)
    weights = locate_by_weights(caller, wrong)
    said = f"something else: wrong in {', '.join(rungs)}{held}; {NOTHING}{alone}{told.said}{weights.said}"
    return Located(weights.stage or told.stage, said)


def locate_by_cases(lost: set[str], seen: Seen) -> Located:
    if lost == {LARGE}:
        return Located("weights", ". Only large logits go wrong: look at what is subtracted before exp, or divided by")
    if lost <= {*ABOUT_MASKS, *MASKS_OF_MORE}:
        return Located("masked")
    if EQUAL in lost:
        return Located("", f". With {EQUAL} it is wrong too: look at masks, softmax, and how heads are put together")
    if any(case.rung == EQUAL and expected(case)["v"].any() for case, _ in seen):  # zero values would hide the weights
        return Located("logits", f". With {EQUAL} it is right, so look at the logits")
    return Located()


def locate_by_weights(caller: Caller, wrong: Seen) -> Located:
    asked = next((case for case, _ in wrong if case.given.v is not None and case.rung not in SIZED), None)
    if asked is None or not caller.offer.core or asked.recipe.groups != asked.recipe.heads:
        return Located()
    case = rounded(asked, caller)
    assert case.given.v is not None
    weights, right, output = read_weights(caller, case), expected(case)["weights"], caller(case).output
    if weights is None or weights.shape != right.shape or not np.isfinite(weights).all():
        return Located()
    is_right, size = are_close(weights, right), 1.0 if output is None else np.abs(np.nan_to_num(output)).max()
    if output is not None and not are_close(output / max(size, 1e-30), weights @ case.given.v / max(size, 1e-30)):
        said = ". With one-hot values its weights are right: the values are combined wrongly"
        return Located("context", said) if is_right else Located()
    told = [] if is_right else list(compare_weights(weights, right))[:2]
    return Located(told[0].stage if told else "", "".join(f". {one.said}" for one in told))


def read_weights(caller: Caller, case: Case) -> Array | None:
    """Return the weights `[b h t s]`: given one-hot values `v_j = e_j`, query i yields `w_i1, w_i2, ...`.

    This assumes the output `sum_j w_ij v_j`. With more keys than value dimensions, each of several calls shows some of
    the keys. Returns None if the output has another shape.
    """
    assert case.given.v is not None
    keys, size = case.given.v.shape[2:]
    parts = []
    for start in range(0, keys, size):
        values = np.zeros_like(case.given.v)
        count = min(size, keys - start)
        values[..., start + np.arange(count), np.arange(count)] = 1.0
        output = caller(replace(case, given=replace(case.given, v=values))).output
        if output is None or output.ndim != 4 or output.shape[-1] != size:
            return None
        parts.append(output[..., :count])
    return np.concatenate(parts, axis=-1)


def compare_weights(weights: Array, right: Array) -> Iterator[Located]:
    hidden = float(np.abs(weights[right == 0]).max(initial=0.0))
    rows, later = weights.sum(axis=-1), np.triu(np.ones(weights.shape[-2:], bool), 1)
    if hidden > CLOSE:
        yield Located("masked", f"Hidden keys get up to {hidden:.3g} of the weight of a row")
    if (weights < -CLOSE).any():
        yield Located("weights", "Some of its weights are negative")
    if not are_close(rows, np.ones_like(rows)):
        least, most = f"{rows.min():.4g}", f"{rows.max():.4g}"
        said = f"The weights of each row sum to {least if least == most else f'{least} to {most}'}"
        yield Located("weights", said)
        return
    if not weights[..., later].any() and right[..., later].any():
        yield Located("masked", "Query i sees only keys up to i")
    yield Located("logits", "The weights of each row sum to 1, but are wrong: look at the scores")


def are_close(one: Array, other: Array) -> bool:
    return one.shape == other.shape and bool(np.abs(one - other).max(initial=0.0) < CLOSE * 10)
