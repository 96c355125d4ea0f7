"""Attention as the textbook writes it: one expression over the whole matrix of logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attn_exp.forms.form import Form
from attn_exp.forms.mixing import mix, product, repeated
from attn_exp.forms.trace import Trace
from attn_exp.rules.rules import whole_grid

if TYPE_CHECKING:
    from attn_exp.arrays import Array
    from attn_exp.rules.grid import Grid
    from attn_exp.rules.rules import Rules


def attend(q: Array, k: Array, v: Array | None, rules: Rules) -> Trace:
    """Compute `normalizer(mask(scale * q k^T)) v` over whole arrays.

    `q` `[... h t d]`, `k` `[... g s d]`, `v` `[... g s e]`; query head `i` reads key/value head `i // (h / g)`.
    Every stage of the trace is formed, each rounded to the type of `q`.
    """
    heads, rows, keys = q.shape[-3], q.shape[-2], k.shape[-2]
    grid = whole_grid(rules, heads, rows, keys, batches=q.shape[0] if q.ndim == 4 else None)
    return weigh(Trace(q=q, k=k, v=v), grid, rules)


def weigh(stages: Trace, grid: Grid, rules: Rules) -> Trace:
    """Return the trace of q, k, v with every later stage added; `grid` says which places of the logits these are."""
    q, k = stages.q, stages.k
    assert q is not None and k is not None
    kind = q.dtype.type
    with np.errstate(over="ignore", invalid="ignore"):  # what masked keys hold may be anything, and comes to nothing
        scores = paired(q, k, grid, rules)
        logits = scores * kind(rules.scale)
        capped = logits if rules.bend_last else bent(logits, rules)
        masked = forbidden(biased(capped, grid, rules), grid, rules)
        masked = bent(masked, rules) if rules.bend_last else masked
    wide = masked if rules.softmax_dtype is None else masked.astype(rules.softmax_dtype)
    weights = rules.normalizer.weigh(wide, extra_logits(grid, rules, wide)).astype(q.dtype, copy=False)
    return mix(stages.replace(scores=scores, logits=logits, capped=capped, masked=masked, weights=weights))


def paired(q: Array, k: Array, grid: Grid, rules: Rules) -> Array:
    """Return the scores `[... h t s]`: `q k^T`, unless a rule says otherwise."""
    keys = repeated(k, q.shape[-3])
    if rules.pairing is not None:
        return rules.pairing.pair(q, keys, grid.head)
    return product(q, keys.swapaxes(-1, -2))


def bent(logits: Array, rules: Rules) -> Array:
    for rule in rules.scores:
        logits = rule.bend(logits)
    return logits


def biased(capped: Array, grid: Grid, rules: Rules) -> Array:
    for rule in rules.scores:
        bias = rule.bias(grid)
        if bias is not None:
            capped = capped + np.asarray(bias).astype(capped.dtype)
    return capped


def forbidden(biased: Array, grid: Grid, rules: Rules) -> Array:
    for mask in rules.masks:
        biased = np.where(mask.allows(grid), biased, biased.dtype.type(-np.inf))
    return biased


def extra_logits(grid: Grid, rules: Rules, masked: Array) -> Array | None:
    extras = [extra for rule in rules.scores if (extra := rule.extra(grid.head)) is not None]
    return np.concatenate(extras, axis=-1).astype(masked.dtype) if extras else None


FORM = Form(attend, bends_last=True, stacked=attend)
