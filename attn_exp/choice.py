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

AT_ONCE = 1 << 18
"""Up to so many logits, it is done before a second thread has joined in: the BLAS has threads of its own, awake."""

SHARED = 1 << 16
"""From so many logits on, the BLAS uses those threads, which the workers of a process pool must not."""

PLAIN = (np.dtype(np.float32), np.dtype(np.float64))


def form(logits: tuple[int, ...], dtype: np.dtype[Any], rules: Rules) -> str:
    """Return the form for logits of that shape: `matrix` for few of them, `blockwise` for many.

    Half precision is rounded stage by stage, and so is a softmax in a type of its own: only `matrix` has the stages.
    """
    staged = dtype.itemsize <= 2 or rules.softmax_dtype is not None
    return "matrix" if staged or math.prod(logits) <= FEW else "blockwise"


def at_once(query: Any, key: Any, value: Any, scale: float | None, is_causal: bool = False) -> Array | None:
    """Return plain attention of few tokens `[... t d]`, or None where anything at all is out of the ordinary.

    For three tokens, checking a call's arguments would take several times as long as the call; for a hundred, cutting
    blocks and waking a thread would take as long. The largest logit is not subtracted: where sums overflow, or
    underflow as `engine.block.trusted` has it, the answer is None as well.
    """
    if not (type(query) is type(key) is type(value) is np.ndarray and query.ndim == key.ndim == value.ndim in (2, 4)):
        return None
    *heads, rows, size = query.shape
    keys, places = key.shape[-2], math.prod(heads) * rows * key.shape[-2]
    if query.dtype not in PLAIN or not query.dtype is key.dtype is value.dtype:
        return None
    if key.shape != (*heads, keys, size) or value.shape[:-1] != (*heads, keys):
        return None
    if not (places and size and value.shape[-1]) or places > AT_ONCE or (places > SHARED and alone()):
        return None
    if is_causal and places <= FEW:  # `matrix` is quick enough there, and exact to the bit whatever masked keys hold
        return None
    kind = query.dtype.type
    with np.errstate(all="ignore"):
        powers = (query * kind(1 / math.sqrt(size) if scale is None else scale)) @ turned(key, rows)
        np.exp(powers, out=powers)
        if is_causal:
            powers *= np.tri(rows, keys, dtype=kind)
        total = powers @ np.ones(keys, kind)
        context: Array = powers @ value
        trusted = np.finfo(kind).eps <= total.min() and total.max() < np.inf and np.isfinite(context).all()
        context /= total[..., None]
    return context if trusted else None


def turned(key: Array, rows: int) -> Array:
    """Return the keys `[... d s]`, copied where the products are so small that the BLAS takes them as they lie."""
    work = rows * key.shape[-2] * key.shape[-1]
    return np.ascontiguousarray(key.mT) if 1 << 16 < work <= 1 << 18 else key.mT


def alone() -> bool:
    """Say whether this process is to keep to one thread."""
    from attn_exp.engine.blas import default_threads  # noqa: PLC0415 - three tokens need none of it

    return default_threads() == 1
