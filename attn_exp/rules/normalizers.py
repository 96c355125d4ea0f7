"""What turns a row of masked logits into weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from attn_exp.rules.grid import Array


def softmax(masked: Array, extra: Array | None = None) -> Array:
    """Return `exp(l_j) / sum_j exp(l_j)` along the last axis.

    The largest logit of each row is subtracted first, so no logit overflows. `extra` `[h 1 1]` is one more logit
    per head that takes its share of the sum and gets no weight. A row of -inf alone gives zeros.
    """
    largest = masked.max(axis=-1, keepdims=True, initial=-np.inf)
    if extra is not None:
        largest = np.maximum(largest, extra)
    anchor = np.where(np.isneginf(largest), largest.dtype.type(0), largest)
    powers = np.exp(masked - anchor)
    total = powers.sum(axis=-1, keepdims=True)
    if extra is not None:
        total = total + np.exp(extra - anchor)
    return np.asarray(powers / np.where(total == 0, total.dtype.type(1), total))


def sigmoid(masked: Array, extra: Array | None = None) -> Array:
    """Return `1 / (1 + exp(-l_j))` of each logit by itself; a row sums to anything from 0 to its number of keys.

    The paper adds a bias of `-ln s` to every logit; here that is a rule of its own, `score=added`. No key takes from
    another, so an extra logit has nothing to share.

    Source: Ramapuram et al. 2024, "Theory, Analysis, and Best Practices for Sigmoid Self-Attention", section 2.
    """
    one = masked.dtype.type(1)
    powers = np.exp(-np.abs(masked))
    return np.asarray(np.where(masked < 0, powers, one) / (one + powers))


def sparsemax(masked: Array, extra: Array | None = None) -> Array:
    """Return the point of the simplex that is nearest to the row: `max(0, l_j - tau)` with tau so that it sums to 1.

    Logits far below the largest get exactly 0. `extra` takes part like one more key and gets no weight here.

    Source: Martins and Astudillo 2016, "From Softmax to Sparsemax", algorithm 1.
    """
    if extra is not None:
        column = np.broadcast_to(extra, (*masked.shape[:-1], 1)).astype(masked.dtype)
        return sparsemax(np.concatenate([masked, column], axis=-1))[..., :-1]
    if not masked.size:
        return masked
    largest = masked.max(axis=-1, keepdims=True, initial=-np.inf)
    shifted = masked - np.where(np.isneginf(largest), 0, largest)
    finite = np.where(np.isneginf(shifted), shifted.dtype.type(-2), shifted)  # below -1 nothing is ever kept
    sorted_down = -np.sort(-finite, axis=-1)
    count = np.arange(1, masked.shape[-1] + 1, dtype=masked.dtype)
    sums = np.cumsum(sorted_down, axis=-1)
    kept = (1 + count * sorted_down > sums).sum(axis=-1, keepdims=True)
    tau = (np.take_along_axis(sums, np.maximum(kept - 1, 0), axis=-1) - 1) / np.maximum(kept, 1)
    return np.asarray(np.where(np.isneginf(largest), 0, np.maximum(finite - tau, 0)).astype(masked.dtype))


NORMALIZERS: dict[str, Callable[[Array, Array | None], Array]] = {
    "softmax": softmax,
    "sigmoid": sigmoid,
    "sparsemax": sparsemax,
}

TAKES_EXTRA = ("softmax", "sparsemax")
"""Normalizers whose weights share a sum, in which an extra logit can take part."""
