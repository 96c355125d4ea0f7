"""Linear attention: a kernel replaces the exponential, so that the sum over keys is formed once for all queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attn_exp.arrays import add_up
from attn_exp.forms.form import Form
from attn_exp.forms.steps import add_context, product, repeat_heads
from attn_exp.forms.trace import Trace
from attn_exp.rules.masks.mask import AllOf
from attn_exp.rules.rules import whole_grid

if TYPE_CHECKING:
    from attn_exp.arrays import Array
    from attn_exp.rules.rules import Rules


def attend(q: Array, k: Array, v: Array | None, rules: Rules) -> Trace:
    """Compute `phi(q_i) sum_j phi(k_j) v_j / phi(q_i) sum_j phi(k_j)` with `phi(x) = elu(x) + 1`.

    Shapes as in `matrix`. Without masks, the cost grows with `t + s`, and no weights `[h t s]` are formed. With a mask,
    each query needs its own sum, so the product `phi(q_i) . phi(k_j)` is formed for every pair.

    Source: Katharopoulos et al. 2020, "Transformers are RNNs", section 3.2.
    """
    kernel_q, kernel_k = above_zero(q), above_zero(repeat_heads(k, q.shape[-3]))
    stages = Trace(q=q, k=k, v=v)
    if rules.masks:
        grid = whole_grid(rules, q.shape[-3], q.shape[-2], k.shape[-2], q.shape[0] if q.ndim == 4 else None)
        allowed = AllOf(rules.masks).allows(grid)
        with np.errstate(over="ignore", invalid="ignore"):  # masked keys may hold any value
            products = product(kernel_q, kernel_k.swapaxes(-1, -2))
        allowed_products = np.where(allowed, products, q.dtype.type(0))
        weights = divide(allowed_products, add_up(allowed_products))
        return add_context(stages.replace(weights=weights)).replace(weights=None)
    if v is None:
        return stages
    numerator = product(kernel_q, product(kernel_k.swapaxes(-1, -2), repeat_heads(v, q.shape[-3])))
    return stages.replace(context=divide(numerator, product(kernel_q, add_up(kernel_k, axis=-2).swapaxes(-1, -2))))


def refuses(rules: Rules) -> str | None:
    """Return why these rules cannot be computed, or None; linear attention forms no logits that they could change."""
    if rules.scores:
        return "linear attention forms no logits, so score rules have nothing to act on; use score=none"
    if not rules.normalizer.exponential:
        return f"linear attention divides by its own sum, so normalizer={rules.normalizer.name} has nothing to act on"
    if rules.scale != 1:
        return "linear attention forms no logits, so there is nothing to scale; use scale=false, or scale=1.0 in Python"
    return None


def above_zero(x: Array) -> Array:
    """Return `elu(x) + 1`: `x + 1` above zero, `e^x` below; never negative, so weights are not negative either."""
    return np.asarray(np.where(x > 0, x + x.dtype.type(1), np.exp(np.minimum(x, x.dtype.type(0)))))


def divide(sums: Array, totals: Array) -> Array:
    """Divide sums by totals; the result is 0 for a query that sees no key."""
    return sums / np.where(totals == 0, totals.dtype.type(1), totals)


FORM = Form(attend, refuses, mix=None, reference="kernel", plainest="linear")
