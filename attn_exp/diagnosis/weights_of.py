"""The weights behind an answer that nothing explains: asked for with one-hot values, and what is true of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.call import Caller
from attn_exp.diagnosis.case import Case, expected
from attn_exp.diagnosis.ways_to_call import Seen, rounded
from attn_exp.rules.masks.array import Allowed

SIZED = ("large inputs", "equal inputs", "tiny inputs", "whole numbers")
"""Questions whose weights are all alike, or 0 and 1."""
CLOSE = 1e-5


def said_of_weights(caller: Caller, seen: Seen, wrong: Seen) -> str:
    """Return what is true of the weights of a function of q, k and v, as a sentence after a full stop; or nothing.

    With the values `v_j = e_j` the answer to query i is its weights `w_i1, w_i2, ...`, if it is `sum_j w_ij v_j`: that
    is held against another answer, to the values of the question.
    """
    case = question(seen, wrong) if caller.offer.core else None
    if case is None or case.given.v is None:
        return ""
    v = case.given.v
    unit = np.broadcast_to(np.eye(*v.shape[-2:]), v.shape).copy()
    asked = [rounded(replace(case, given=replace(case.given, v=values)), caller) for values in (unit, v)]
    found, mixed = (caller(one).output for one in asked)
    right = expected(asked[0])
    if found is None or mixed is None or found.shape != right["output"].shape or mixed.shape != found.shape:
        return ""
    if not (np.isfinite(found).all() and np.isfinite(mixed).all()) or case.recipe.groups != case.recipe.heads:
        return ""
    weights = found[..., : v.shape[-2]]
    given = asked[1].given.v
    if given is None or not close(weights @ given, mixed):
        is_right = close(weights, right["weights"])
        return ". Of one-hot values its weights are right: values are mixed otherwise" if is_right else ""
    return "".join(f". {said}" for said in list(true_of(weights, right["weights"]))[:2])


def question(seen: Seen, wrong: Seen) -> Case | None:
    """Return the first wrong question with no more keys than values have numbers; the first one may be cut so."""
    for case, _ in wrong:
        v = case.given.v
        if v is not None and v.shape[-2] <= v.shape[-1] and case.rung not in SIZED:
            return case
    case = seen[0][0]
    q, k, v = case.given.q, case.given.k, case.given.v
    of_array = any(isinstance(mask, Allowed) for mask in case.recipe.rules.masks)
    if case not in {one for one, _ in wrong} or q is None or k is None or v is None or of_array:
        return None
    few = v.shape[-1] - 1
    return replace(case, given=replace(case.given, q=q[..., :few, :], k=k[..., :few, :], v=v[..., :few, :]))


def true_of(weights: Array, right: Array) -> Iterator[str]:
    """Yield what is true of weights `[b h t s]` that are not the right ones."""
    if close(weights, right):
        return
    hidden = float(np.abs(weights[right == 0]).max(initial=0.0))
    if hidden > CLOSE:
        yield f"Keys that are hidden get up to {hidden:.3g} of the weight of a row"
    rows = weights.sum(axis=-1)
    if (weights < -CLOSE).any():
        yield "Some of its weights are negative"
    if close(rows, np.ones_like(rows)):
        later = np.triu(np.ones(weights.shape[-2:], bool), 1)
        if close(weights[..., later], 0 * weights[..., later]) and not close(right[..., later], 0 * right[..., later]):
            yield "Query i sees keys up to i alone"
        yield "The weights of each row sum to 1, and are others than the right ones: look at the scores"
    elif np.ptp(rows) < CLOSE:
        yield f"The weights of each row sum to {rows.mean():.4g}"
    else:
        over = {"queries": -2, "heads": 1, "entries of the batch": 0}
        for name, axis in over.items():
            sums = weights.sum(axis=axis)
            if close(sums, np.ones_like(sums)):
                yield f"Its weights sum to 1 over the {name}, and not over the keys"
        yield f"The weights of a row sum to {rows.min():.3g} to {rows.max():.3g}"


def close(one: Array, other: Array) -> bool:
    """Say whether two arrays are the same, rounding in float32 apart."""
    return one.shape == other.shape and bool(np.abs(one - other).max(initial=0.0) < CLOSE * 10)
