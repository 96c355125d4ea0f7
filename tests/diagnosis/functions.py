"""Attention of arrays in plain NumPy, of which tests make functions with something wrong or unusual in them."""

from __future__ import annotations

from typing import Any

import numpy as np


def softmax(scores: Any, axis: int = -1) -> Any:
    powers = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def raw(q: Any, k: Any) -> Any:
    return q @ k.swapaxes(-1, -2)


def logits(q: Any, k: Any) -> Any:
    return raw(q, k) / q.shape[-1] ** 0.5


def attend(q: Any, k: Any, v: Any) -> Any:
    return softmax(logits(q, k)) @ v


def causal(scores: Any, diagonal: int = 0) -> Any:
    """Hide the keys that come later than the query by more than `diagonal`."""
    return np.where(np.tri(scores.shape[-2], scores.shape[-1], diagonal, dtype=bool), scores, -np.inf)


def split(x: Any, heads: int) -> Any:
    """Return `[... t h*d]` as `[... h t d]`."""
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(-2, -3)


def merge(context: Any) -> Any:
    """Return `[... h t d]` as `[... t h*d]`."""
    context = context.swapaxes(-2, -3)
    return context.reshape(*context.shape[:-2], -1)
