"""Locate a mistake that nothing explains: the first stage that differs from attention, and its properties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Answer, Case, differs, expected
from attn_exp.diagnosis.asking.questions import ABOUT_MASKS, MASKS_OF_MORE
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.explaining.answers import LARGE
from attn_exp.diagnosis.finding.ways_to_call import Seen, digits_of, rounded
from attn_exp.diagnosis.recipes.conditions import only_there
from attn_exp.rules.masks.array import Allowed

NOTHING = "no known mistake explains it"
EQUAL = "equal inputs"
OFF_BY = 1e-3
"""Relative error that no dtype's rounding exceeds."""


@dataclass(frozen=True)
class Located:
    """What is known about wrong answers that no mistake explains.

    `stage` is the first stage that differs: `logits` (for everything that produces them), `masked`, `weights` or
    `context`; empty if unknown. `said` is one or more sentences for the user.
    """

    stage: str = ""
    said: str = ""


def located(caller: Caller, seen: Seen, wrong: Seen) -> Located:
    """Return which cases are wrong, and the stage at which the mistake must lie."""
    outputs = [answer.output for _, answer in seen if answer.output is not None and answer.output.size]
    for said, is_so in (
        ("zeros", all(not output.any() for output in outputs)),
        ("NaN", all(np.isnan(output).all() for output in outputs)),
        ("the same number", len(outputs) > 1 and all_are(outputs[0].ravel()[0], outputs)),
    ):
        if outputs and is_so:
            return Located("", f"{said}, whatever it is given; {NOTHING}")
    if sees_itself_alone(wrong, digits_of(caller, wrong[0][1])):
        return ITSELF_ALONE
    rungs = list(dict.fromkeys(case.rung for case, _ in wrong))
    right = [case.rung for case, answer in seen if case.rung not in rungs and answer.output is not None]
    held = f", and right in {', '.join(dict.fromkeys(right))}" if right else ""
    where = only_there(wrong, seen)
    alone = f". It is wrong where {where}, and there alone" if where else ""
    told, weights = from_questions(seen, wrong), from_weights(caller, wrong)
    said = f"something else: wrong in {', '.join(rungs)}{held}; {NOTHING}{alone}{told.said}{weights.said}"
    return Located(weights.stage or told.stage, said)


ITSELF_ALONE = Located(
    "weights", f"something else: each query gets the value of its own token alone, whatever the others are; {NOTHING}"
)


def sees_itself_alone(wrong: Seen, digits: int) -> bool:
    """Return whether each query of every wrong case sees only the key of its own token; needs several heads."""
    square = [(case, answer) for case, answer in wrong if case.given.k is None and case.recipe.heads > 1]
    if not square or len(square) < len(wrong):
        return False
    for case, answer in square:
        rows, keys = expected(case)["weights"].shape[-2:]
        own = case.with_masks((Allowed(np.eye(rows, keys, dtype=bool)),)) if rows == keys else None
        if own is None or answer.output is None or differs(answer.output, expected(own), digits):
            return False
    return True


def all_are(number: float, outputs: list[Array]) -> bool:
    """Return whether every number of every output equals `number`."""
    return all(np.allclose(output, number, equal_nan=True) for output in outputs)


def from_questions(seen: Seen, wrong: Seen) -> Located:
    """Return where the mistake must lie, judging by which cases are right."""
    lost = {case.rung for case, _ in wrong}
    holed = [(case, answer) for case, answer in wrong if answer.output is not None and np.isnan(answer.output).any()]
    if holed and all(only_hidden_from(*pair) for pair in holed):
        return NAN_WHERE_HIDDEN
    if lost == {LARGE}:
        return LATE_MASK if all(only_hidden_maximum(*pair) for pair in wrong) else LARGE_ALONE
    if lost <= {*ABOUT_MASKS, *MASKS_OF_MORE}:
        return Located("masked")
    told = {case.rung for case, _ in seen if expected(case)["v"].any()}  # zero values would hide the weights
    if EQUAL in told and EQUAL not in lost:
        return EQUAL_IS_RIGHT
    for case, answer in wrong:
        if case.rung == EQUAL and answer.output is not None:
            share = scale_of(answer.output, expected(case)["output"])
            return EQUAL_IS_WRONG if share is None else Located("weights", f". {EQUAL_BY.format(share=share)}")
    return Located()


NAN_WHERE_HIDDEN = Located(
    "masked",
    ". Every query from which a key is hidden gets NaN, and no other: what is put where the mask forbids reaches the "
    "maximum of the row, or its sum. Put -inf there",
)
LATE_MASK = Located(
    "weights",
    ". Only large logits go wrong, and only for queries whose largest logit is hidden: the maximum is taken over "
    "hidden keys too, and what is seen vanishes beside it. Put -inf where the mask forbids, then take the maximum",
)
LARGE_ALONE = Located(
    "weights", ". Only large logits go wrong: look at what is subtracted before exp, and at what is divided by"
)
EQUAL_IS_RIGHT = Located(
    "logits", ". With equal inputs it is right: values and the sums of weights are fine, so look at the logits"
)
EQUAL_IS_WRONG = Located(
    "", ". With equal inputs it is wrong too: look at masks, the softmax, and how heads are put together"
)
EQUAL_BY = "With equal inputs it is {share:.4g} times the right answer: the weights do not sum to 1"


def from_weights(caller: Caller, wrong: Seen) -> Located:
    """Return what is wrong with the weights of a function of q, k and v, and hence at which stage."""
    asked = question(wrong) if caller.offer.core else None
    if asked is None or asked.recipe.groups != asked.recipe.heads:
        return Located()
    case = rounded(asked, caller)
    weights, right = weights_of(caller, case), expected(case)["weights"]
    if weights is None or weights.shape != right.shape or not np.isfinite(weights).all():
        return Located()
    if not is_product(caller, case, weights):
        return MIXED_OTHERWISE if close(weights, right) else Located()
    if close(weights, right):
        return Located()
    told = list(true_of(weights, right))[:2]
    return Located(told[0].stage, "".join(f". {one.said}" for one in told))


def weights_of(caller: Caller, case: Case) -> Array | None:
    """Return the weights `[b h t s]`: given one-hot values `v_j = e_j`, query i yields `w_i1, w_i2, ...`.

    This assumes an output `sum_j w_ij v_j`. With more keys than value dimensions, each of several calls shows some of
    the keys. Returns None if the output has another shape.
    """
    if case.given.v is None:
        return None
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


def is_product(caller: Caller, case: Case, weights: Array) -> bool:
    """Return whether the output is these weights times the values."""
    output, values = caller(case).output, case.given.v
    if output is None or values is None or case.recipe.heads != case.recipe.groups:
        return True
    product = weights @ values
    room = 1e-5 * max(float(np.abs(np.nan_to_num(output)).max(initial=0.0)), 1e-30)
    return output.shape == product.shape and np.allclose(output, product, rtol=0, atol=room, equal_nan=True)


MIXED_OTHERWISE = Located("context", ". Of one-hot values its weights are right: values are mixed otherwise")
SIZED = (LARGE, EQUAL, "tiny inputs", "whole numbers")
"""Cases whose weights are all alike, or 0 and 1."""
CLOSE = 1e-5


def question(wrong: Seen) -> Case | None:
    """Return the first wrong case whose weights are informative."""
    return next((case for case, _ in wrong if case.given.v is not None and case.rung not in SIZED), None)


def true_of(weights: Array, right: Array) -> Iterator[Located]:
    """Yield what is wrong with weights `[b h t s]`."""
    hidden = float(np.abs(weights[right == 0]).max(initial=0.0))
    if hidden > CLOSE:
        yield Located("masked", f"Keys that are hidden get up to {hidden:.3g} of the weight of a row")
    rows = weights.sum(axis=-1)
    if (weights < -CLOSE).any():
        yield Located("weights", "Some of its weights are negative")
    if close(rows, np.ones_like(rows)):
        later = np.triu(np.ones(weights.shape[-2:], bool), 1)
        if close(weights[..., later], 0 * weights[..., later]) and not close(right[..., later], 0 * right[..., later]):
            yield Located("masked", "Query i sees keys up to i alone")
        yield Located(
            "logits", "The weights of each row sum to 1, and are others than the right ones: look at the scores"
        )
    elif np.ptp(rows) < CLOSE:
        yield Located("weights", f"The weights of each row sum to {rows.mean():.4g}")
    else:
        over = {"queries": -2, "heads": 1, "entries of the batch": 0}
        for name, axis in over.items():
            sums = weights.sum(axis=axis)
            if close(sums, np.ones_like(sums)):
                yield Located("weights", f"Its weights sum to 1 over the {name}, and not over the keys")
        yield Located("weights", f"The weights of a row sum to {rows.min():.3g} to {rows.max():.3g}")


def close(one: Array, other: Array) -> bool:
    """Return whether two arrays are equal within float32 rounding."""
    return one.shape == other.shape and bool(np.abs(one - other).max(initial=0.0) < CLOSE * 10)


def only_hidden_maximum(case: Case, answer: Answer) -> bool:
    """Return whether the only wrong queries are those whose largest logit belongs to a hidden key."""
    stages, output = expected(case), answer.output
    if output is None or output.shape != stages["context"].shape:
        return False
    hidden = stages["capped"].max(axis=-1) > stages["masked"].max(axis=-1)
    gap = np.nan_to_num(np.abs(output - stages["output"]), nan=np.inf).max(axis=-1)
    wrong = gap > OFF_BY * np.abs(stages["output"]).max(initial=0.0)
    return bool(wrong.any() and not (wrong & ~hidden).any())


def only_hidden_from(case: Case, answer: Answer) -> bool:
    """Return whether exactly the queries with a hidden key get NaN."""
    stages, output = expected(case), answer.output
    if output is None or output.shape != stages["output"].shape:
        return False
    rows = (stages["masked"] == -np.inf).any(axis=-1)
    rows = rows if output.ndim == rows.ndim + 1 else rows.any(axis=1)  # a layer's output combines all heads
    return np.array_equal(np.isnan(output), np.broadcast_to(rows[..., None], output.shape))


def scale_of(output: Array, right: Array) -> float | None:
    """Return the factor between two outputs, or None if they are not proportional."""
    if output.shape != right.shape or not np.isfinite(output).all():
        return None
    factor = float((output * right).sum() / max((right * right).sum(), 1e-300))
    close = np.allclose(output, factor * right, atol=1e-6 * max(np.abs(output).max(initial=0.0), 1e-30))
    return factor if close and factor else None
