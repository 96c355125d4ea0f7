"""The weights that a function must have had, read off its answers to values of ones and zeros."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.call import Caller
from attn_exp.diagnosis.case import Case


def weights_of(caller: Caller, case: Case) -> Array | None:
    """Return the weights `[b h t s]`: with the values `v_j = e_j` the answer to query i is `w_i1, w_i2, ...`.

    That holds of an answer that is `sum_j w_ij v_j`. Where there are more keys than a value has numbers, several
    questions show some of the keys each. None where an answer has another shape.
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
    """Say whether an answer is these weights times the values."""
    output, values = caller(case).output, case.given.v
    if output is None or values is None or case.recipe.heads != case.recipe.groups:
        return True
    product = weights @ values
    room = 1e-5 * max(float(np.abs(np.nan_to_num(output)).max(initial=0.0)), 1e-30)
    return output.shape == product.shape and np.allclose(output, product, rtol=0, atol=room, equal_nan=True)
