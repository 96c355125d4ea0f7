"""Translate rules into the arguments of another library's attention: one array for masks and biases."""

from __future__ import annotations

import numpy as np

from attn_exp import registry
from attn_exp.arrays import Array
from attn_exp.rules.masks.mask import AllOf
from attn_exp.rules.rules import Rules, whole_grid
from attn_exp.rules.scores.score import Score


def beyond(rules: Rules, name: str, caps: int = 0, dtype: str | None = None) -> str | None:
    """Return why these rules cannot be expressed as a bias on the logits and up to `caps` soft-caps, or None.

    `dtype` is the type in which the library computes its softmax, if that is not the input's.
    """
    if rules.pairing is not None:
        return f"{name} multiplies queries with keys; score={registry.name_of(rules.pairing)} does not"
    if not rules.normalizer.exponential:
        return f"{name} supports only softmax, not {rules.normalizer.name}"
    if rules.softmax_dtype is not None and np.dtype(rules.softmax_dtype) != dtype:
        return (
            f"{name} computes its softmax in {dtype or 'the type of its input'}, not in {np.dtype(rules.softmax_dtype)}"
        )
    bends = [rule for rule in rules.scores if type(rule).bend is not Score.bend]
    capped = [rule for rule in bends if rule.bound() is not None][:caps]
    if len(bends) > len(capped) or any(type(rule).extra is not Score.extra for rule in rules.scores):
        takes = "numbers to add to the logits" + (", a soft-cap" if caps else "")
        return f"{name} takes {takes}, and no other score rule"
    return None


def change(q: Array, k: Array, rules: Rules) -> Array | None:
    """Return a boolean mask (True = may attend) or an additive array `[... h t s]`, or None if neither is needed."""
    grid = whole_grid(rules, q.shape[-3], q.shape[-2], k.shape[-2], batches=q.shape[0] if q.ndim == 4 else None)
    whole = (*q.shape[:-1], k.shape[-2])
    biases = [bias for rule in rules.scores if (bias := rule.bias(grid)) is not None]
    if not biases and not rules.masks:
        return None
    allowed = np.array(np.broadcast_to(AllOf(rules.masks).allows(grid), whole), bool)
    if not biases:
        return allowed
    total = sum(biases, start=np.zeros(whole))
    return np.asarray(np.where(allowed, total, -np.inf)).astype(q.dtype)
