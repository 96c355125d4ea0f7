"""Linear attention as a recurrent network: one state, to which each newly visible key is added."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attn_exp.arrays import widen
from attn_exp.forms.form import Form
from attn_exp.forms.linear import above_zero, divide, refuses
from attn_exp.forms.steps import repeat_heads
from attn_exp.forms.trace import Trace
from attn_exp.rules.masks.mask import AllOf
from attn_exp.rules.rules import whole_grid

if TYPE_CHECKING:
    from attn_exp.arrays import Array
    from attn_exp.rules.rules import Rules


def attend(q: Array, k: Array, v: Array | None, rules: Rules) -> Trace:
    """Compute the same function as `linear`, one query at a time, from `sum_j phi(k_j) v_j` and `sum_j phi(k_j)`.

    These two sums are the state. Each query adds the keys that the previous query did not see. Under the causal mask,
    that is one key, so each query has the same cost. If a query no longer sees a key, as in a sliding window, the
    state is computed anew: subtracting the key would leave rounding errors or NaN.

    Source: Katharopoulos et al. 2020, "Transformers are RNNs", section 3.4.
    """
    stages = Trace(q=q, k=k, v=v)
    if v is None:
        return stages
    heads, rows, keys = q.shape[-3], q.shape[-2], k.shape[-2]
    kernel_q, kernel_k, values = map(widen, (above_zero(q), above_zero(repeat_heads(k, heads)), repeat_heads(v, heads)))
    grid = whole_grid(rules, heads, rows, keys, q.shape[0] if q.ndim == 4 else None)
    allowed = np.broadcast_to(AllOf(rules.masks).allows(grid), (*q.shape[:-1], keys))
    context = np.zeros((*q.shape[:-1], v.shape[-1]), v.dtype)
    for head_index in np.ndindex(q.shape[:-2]):
        in_state, state = np.zeros(keys, bool), np.zeros((q.shape[-1], v.shape[-1]), values.dtype)
        total = np.zeros(q.shape[-1], kernel_q.dtype)
        for row in range(rows):
            visible = allowed[(*head_index, row)]
            if (in_state & ~visible).any():
                in_state, state, total = np.zeros(keys, bool), np.zeros_like(state), np.zeros_like(total)
            for key in np.flatnonzero(visible & ~in_state):
                state = state + np.outer(kernel_k[(*head_index, key)], values[(*head_index, key)])
                total = total + kernel_k[(*head_index, key)]
            in_state = visible
            query = kernel_q[(*head_index, row)]
            context[(*head_index, row)] = divide(query @ state, np.asarray(query @ total))
    return stages.replace(context=context)


FORM = Form(attend, refuses, mix=None, reference="kernel", plainest="linear")
