"""Which form computes a problem where nobody says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attn_exp.rules.rule import Rules

Array = NDArray[Any]

AUTO = "auto"
"""The word for "whichever form is fastest here"."""

FEW = 1 << 13
"""Up to so many logits, one expression over the whole matrix is done before blocks are cut."""

PLAIN = (np.dtype(np.float32), np.dtype(np.float64))


def form(logits: tuple[int, ...], dtype: np.dtype[Any], rules: Rules) -> str:
    """Return the form for logits of that shape: `matrix` for few of them, `blockwise` for many.

    Half precision is rounded stage by stage, and so is a softmax in a type of its own: only `matrix` has the stages.
    """
    staged = dtype.itemsize <= 2 or rules.softmax_dtype is not None
    return "matrix" if staged or math.prod(logits) <= FEW else "blockwise"


def at_once(query: Any, key: Any, value: Any, scale: float | None) -> Array | None:
    """Return plain attention of one small head `[t d]`, or None where anything at all is out of the ordinary.

    For three tokens, checking a call's arguments would take several times as long as the call.
    """
    if not (type(query) is type(key) is type(value) is np.ndarray and query.ndim == key.ndim == value.ndim == 2):
        return None
    (rows, size), keys = query.shape, len(key)
    if query.dtype not in PLAIN or not query.dtype is key.dtype is value.dtype:
        return None
    if key.shape[1] != size or value.shape[0] != keys or not 0 < rows * keys * size * value.shape[1] <= 4 * FEW:
        return None
    powers = query @ key.T
    powers *= 1 / math.sqrt(size) if scale is None else scale
    powers -= np.maximum.reduce(powers, axis=-1, keepdims=True)
    np.exp(powers, out=powers)
    context: Array = powers @ value
    context /= np.add.reduce(powers, axis=-1, keepdims=True)
    return context if math.isfinite(np.add.reduce(context, axis=None)) else None
