"""Attention as in autoregressive decoding: token by token, over a cache of the keys and values so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attn_exp.forms import pipeline
from attn_exp.forms.form import Form
from attn_exp.forms.pipeline import Recipe
from attn_exp.forms.trace import Trace
from attn_exp.rules.rules import part_grid

if TYPE_CHECKING:
    from attn_exp.arrays import Array
    from attn_exp.rules.rules import Rules


def attend(q: Array, k: Array, v: Array | None, rules: Rules) -> Trace:
    """Compute the same function as `matrix` under masks that hide later keys, one query at a time.

    Step i sees only the cache: the keys and values at positions up to its own, `i + offset`. Each step computes one row
    `[h 1 s]`; together, the rows are the weights and the context of the trace.
    """
    heads, rows, keys = q.shape[-3], q.shape[-2], k.shape[-2]
    weights = np.zeros((*q.shape[:-1], keys), q.dtype)
    context = None if v is None else np.zeros((*q.shape[:-1], v.shape[-1]), v.dtype)
    offset = np.asarray(rules.offset)
    batch = np.arange(q.shape[0])[:, None, None, None] if q.ndim == 4 else 0
    head = np.arange(heads)[:, None, None]
    for row in range(rows):
        cached = int(np.clip(row + offset.max() + 1, 0, keys))
        grid = part_grid(rules, batch, head, np.array([[row]]), np.arange(cached), (heads, rows, keys))
        cache = k[..., :cached, :], None if v is None else v[..., :cached, :]
        step = pipeline.attend(Recipe(rules), q[..., row : row + 1, :], *cache, grid)
        if step.weights is not None:
            weights[..., row, :cached] = step.weights[..., 0, :]
        if context is not None and step.context is not None:
            context[..., row, :] = step.context[..., 0, :]
    return Trace(q=q, k=k, v=v, weights=weights, context=context)


def refuses(rules: Rules) -> str | None:
    """Return why decoding cannot use these masks; None if one of them hides later keys, which are not in the cache."""
    # with two keys, a causal mask lets the query at position 0 see only the first
    causal = any(mask.relative and mask.span(0, 0, 0, 2).some_stop < 2 for mask in rules.masks)
    return None if causal else "decoding has no later keys to look at; use mask=causal"


FORM = Form(attend, refuses, matrices=1, mix=None)
