"""Attention as the textbook writes it: one expression over the whole matrix of logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attn_exp.normalizers import NORMALIZERS
from attn_exp.rules.rule import whole_grid
from attn_exp.stages import Trace

if TYPE_CHECKING:
    from attn_exp.rules.rule import Array, Grid, Rules


def attend(q: Array, k: Array, v: Array | None, rules: Rules) -> Trace:
    """Compute `normalizer(mask(scale * q k^T)) v` over whole arrays.

    `q` `[... h t d]`, `k` `[... g s d]`, `v` `[... g s e]`; query head `i` reads key/value head `i // (h / g)`.
    Every stage of the trace is formed.
    """
    heads, rows, keys = q.shape[-3], q.shape[-2], k.shape[-2]
    grid = whole_grid(rules, heads, rows, keys, batches=q.shape[0] if q.ndim == 4 else None)
    scores = q @ repeated(k, heads).swapaxes(-1, -2)
    logits = scores * rules.scale
    capped = bent(logits, rules)
    masked = forbidden(biased(capped, grid, rules), grid, rules)
    weights = NORMALIZERS[rules.normalizer](masked, extra_logit(grid, rules))
    return mix(Trace(q=q, k=k, v=v, scores=scores, logits=logits, capped=capped, masked=masked, weights=weights))


def mix(stages: Trace) -> Trace:
    """Return the trace with `context = weights v` `[... h t e]` added; without values there is no context."""
    if stages.v is None or stages.weights is None:
        return stages
    return stages.replace(context=stages.weights @ repeated(stages.v, stages.weights.shape[-3]))


def repeated(shared: Array, heads: int) -> Array:
    """Give each query head its own copy of the key/value head that it reads."""
    groups = shared.shape[-3]
    return shared if groups == heads else np.repeat(shared, heads // groups, axis=-3)


def bent(logits: Array, rules: Rules) -> Array:
    for rule in rules.scores:
        logits = rule.bend(logits)
    return logits


def biased(capped: Array, grid: Grid, rules: Rules) -> Array:
    for rule in rules.scores:
        bias = rule.bias(grid)
        if bias is not None:
            capped = capped + bias
    return capped


def forbidden(biased: Array, grid: Grid, rules: Rules) -> Array:
    for mask in rules.masks:
        biased = np.where(mask.allows(grid), biased, -np.inf)
    return biased


def extra_logit(grid: Grid, rules: Rules) -> Array | None:
    extras = [extra for rule in rules.scores if (extra := rule.extra(grid.head)) is not None]
    return np.asarray(np.logaddexp.reduce(extras)) if extras else None
