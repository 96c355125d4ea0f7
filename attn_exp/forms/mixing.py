"""The last step of attention, weights times values, and the two products that whole-matrix forms share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from attn_exp.arrays import Array
    from attn_exp.forms.trace import Trace


def mix(stages: Trace) -> Trace:
    """Return the trace with `context = weights v` `[h t e]` added; without values there is no context.

    A key of weight zero adds nothing, even where its value is NaN or infinite: `0 * NaN` would be NaN.
    """
    if stages.v is None or stages.weights is None:
        return stages
    weights, v = stages.weights, repeated(stages.v, stages.weights.shape[-3])
    finite = np.isfinite(v)
    if finite.all():
        return stages.replace(context=product(weights, v))
    context = product(weights, np.where(finite, v, v.dtype.type(0)))
    for key in np.flatnonzero(~finite.all(axis=(*range(v.ndim - 2), -1))):
        weight, value = weights[..., key, None], np.where(finite, 0, v)[..., None, key, :]
        context = context + np.where(weight != 0, value, 0).astype(context.dtype)
    return stages.replace(context=context)


def product(left: Array, right: Array) -> Array:
    """Return the matrix product; of half-precision numbers it is summed in float32 and rounded once."""
    if left.dtype.itemsize > 2:
        return np.asarray(left @ right)
    return np.asarray(left.astype(np.float32) @ right.astype(np.float32)).astype(left.dtype)


def repeated(shared: Array, heads: int) -> Array:
    """Give each query head its own copy of the key/value head that it reads, `[g s d]` to `[h s d]`."""
    groups = shared.shape[-3]
    return shared if groups == heads else np.repeat(shared, heads // groups, axis=-3)
