"""Attention as its definition reads: one query at a time, one key at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attn_exp.normalizers import NORMALIZERS
from attn_exp.rules.rule import Grid
from attn_exp.stages import Trace

if TYPE_CHECKING:
    from attn_exp.rules.rule import Array, Rules


def attend(q: Array, k: Array, v: Array | None, rules: Rules) -> Trace:
    """Compute the same function as `matrix`, by explicit loops over batches, heads, queries and keys.

    Shapes as in `matrix`. Every stage of the trace is formed, a number at a time.
    """
    heads, rows, keys = q.shape[-3], q.shape[-2], k.shape[-2]
    scores, logits, capped, masked, weights = (np.zeros((*q.shape[:-1], keys), q.dtype) for _ in range(5))
    for *batch, head, row in np.ndindex(q.shape[:-1]):
        line = (*batch, head, row)
        for key in range(keys):
            scores[line][key] = np.dot(q[line], k[(*batch, head * k.shape[-3] // heads, key)])
            logits[line][key] = scores[line][key] * rules.scale
            capped[line][key] = bent(logits[line][key], rules)
            masked[line][key] = judged(capped[line][key], place(line, key, heads, rows, keys, rules), rules)
        weights[line] = NORMALIZERS[rules.normalizer](masked[line], extra_logit(head, rules))
    return mix(Trace(q=q, k=k, v=v, scores=scores, logits=logits, capped=capped, masked=masked, weights=weights))


def mix(stages: Trace) -> Trace:
    """Return the trace with `context_i = sum_j weights_ij v_j` added; without values there is no context."""
    if stages.v is None or stages.weights is None:
        return stages
    weights, v = stages.weights, stages.v
    context = np.zeros((*weights.shape[:-1], v.shape[-1]), v.dtype)
    for *batch, head, row, key in np.ndindex(weights.shape):
        value = v[(*batch, head * v.shape[-3] // weights.shape[-3], key)]
        context[(*batch, head, row)] += weights[(*batch, head, row, key)] * value
    return stages.replace(context=context)


def place(line: tuple[int, ...], key: int, heads: int, rows: int, keys: int, rules: Rules) -> Grid:
    """Return the grid of one place."""
    *batch, head, row = line
    sample = batch[0] if batch else 0
    offset = np.asarray(rules.offset)
    query = row + int(offset[sample] if offset.ndim else offset)
    return Grid(batch=sample, head=head, row=row, query=query, key=key, heads=heads, rows=rows, keys=keys)


def bent(logit: Any, rules: Rules) -> Any:
    for rule in rules.scores:
        logit = rule.bend(logit)
    return logit


def judged(logit: Any, grid: Grid, rules: Rules) -> Any:
    """Return the logit with every bias, or -inf where a mask forbids the place."""
    if not all(mask.allows(grid) for mask in rules.masks):
        return -np.inf
    for rule in rules.scores:
        logit = logit + (rule.bias(grid) or 0.0)
    return logit


def extra_logit(head: int, rules: Rules) -> Array | None:
    extras = [extra for rule in rules.scores if (extra := rule.extra(head)) is not None]
    return np.asarray(np.logaddexp.reduce(extras)) if extras else None
