"""Attention as in its definition: one query and one key at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attn_exp.arrays import widen
from attn_exp.forms import pipeline
from attn_exp.forms.form import Form
from attn_exp.forms.pipeline import Recipe
from attn_exp.forms.trace import Trace
from attn_exp.rules.rules import part_grid

if TYPE_CHECKING:
    from attn_exp.arrays import Array
    from attn_exp.rules.grid import Grid
    from attn_exp.rules.rules import Rules


def attend(q: Array, k: Array, v: Array | None, rules: Rules) -> Trace:
    """Compute the same function as `matrix`, by explicit loops over batches, heads, queries and keys.

    Shapes as in `matrix`. The trace has every stage. Each number is computed separately and rounded to the type of `q`.
    """
    keys = k.shape[-2]
    sizes = q.shape[-3], q.shape[-2], keys
    scores, logits, capped, masked, weights = (np.zeros((*q.shape[:-1], keys), q.dtype) for _ in range(5))
    for *batch, head, row in np.ndindex(q.shape[:-1]):
        row_index = (*batch, head, row)
        for key in range(keys):
            index = (*row_index, key)
            with np.errstate(over="ignore", invalid="ignore"):  # masked keys may hold any value
                scores[index] = compute_score(
                    q[row_index], k[(*batch, head * k.shape[-3] // q.shape[-3], key)], head, rules
                )
                logits[index] = scores[index] * q.dtype.type(rules.scale)
                capped[index] = logits[index] if rules.bend_last else bend_logit(logits[index], rules)
            masked[index] = mask_and_bias(
                capped[index], part_grid(rules, batch[0] if batch else 0, head, row, key, sizes), rules
            )
            if rules.bend_last:
                masked[index] = bend_logit(masked[index], rules)
        row_logits = masked[row_index] if rules.softmax_dtype is None else masked[row_index].astype(rules.softmax_dtype)
        weights[row_index] = rules.normalizer.weigh(row_logits, extra_logits(head, rules, row_logits))
    return mix(Trace(q=q, k=k, v=v, scores=scores, logits=logits, capped=capped, masked=masked, weights=weights))


def mix(stages: Trace) -> Trace:
    """Return the trace with `context_i = sum_j weights_ij v_j` added; without values there is no context.

    A key of weight zero adds nothing, even if its value is NaN or infinite: `0 * NaN` would be NaN.
    """
    if stages.v is None or stages.weights is None:
        return stages
    weights, v = stages.weights, stages.v
    context = np.zeros((*weights.shape[:-1], v.shape[-1]), widen(v).dtype)
    for *batch, head, row, key in np.ndindex(weights.shape):
        weight = weights[(*batch, head, row, key)]
        if weight != 0:
            value = v[(*batch, head * v.shape[-3] // weights.shape[-3], key)]
            context[(*batch, head, row)] += weight.astype(context.dtype) * value.astype(context.dtype)
    return stages.replace(context=context.astype(v.dtype, copy=False))


def compute_score(query: Array, key: Array, head: int, rules: Rules) -> Any:
    if rules.pairing is not None:
        return rules.pairing.pair(query[None], key[None], head)[0, 0]
    return np.dot(widen(query), widen(key))  # half precision is summed in float32


def bend_logit(logit: Any, rules: Rules) -> Any:
    for rule in rules.scores:
        logit = rule.bend(logit)
    return logit


def mask_and_bias(logit: Any, grid: Grid, rules: Rules) -> Any:
    if not all(mask.allows(grid) for mask in rules.masks):
        return -np.inf
    for rule in rules.scores:
        bias = rule.bias(grid)
        logit = logit if bias is None else logit + np.asarray(bias).astype(logit.dtype)
    return logit


def extra_logits(head: int, rules: Rules, masked: Array) -> Array | None:
    extras = [extra for rule in rules.scores if (extra := rule.extra(head)) is not None]
    return np.array(extras, masked.dtype) if extras else None


def stacked(q: Array, k: Array, v: Array | None, rules: Rules) -> Trace:
    """Compute many float64 problems `[n 1 h t d]` at once, with the same results as `attend`, bit by bit.

    Each number is computed by the steps of `attend` in the same order. Rules that bend logits, or replace the product
    of queries and keys, are not supported.
    """
    return pipeline.attend(Recipe(rules, score=score_each, mix=add_values), q, k, v)


def score_each(setup: Any, q: Array, k: Array) -> Array:
    """Return the scores, each computed as a separate dot product, as in `compute_score`."""
    return np.ascontiguousarray(np.vecdot(q[..., :, None, :], k[..., None, :, :]))


def add_values(setup: Any, weights: Array, v: Array, k: Array) -> Array:
    """Return `sum_j weights_ij v_j`, added key by key, as in `mix`."""
    context = np.zeros((*weights.shape[:-1], v.shape[-1]))
    for key in range(v.shape[-2]):
        weight = weights[..., key, None]
        context += np.where(weight != 0, weight * v[..., None, key, :], 0.0)
    return context


FORM = Form(attend, mix=mix, bends_last=True, stacked=stacked)
