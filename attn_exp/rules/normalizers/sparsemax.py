"""Sparsemax: like softmax, but keys with low logits get a weight of exactly 0."""

from __future__ import annotations

import math

import numpy as np

from attn_exp.arrays import Array, widen
from attn_exp.rules.example import Example
from attn_exp.rules.normalizers.normalizer import Normalizer, Vector


def sparsemax(masked: Array, extra: Array | None = None) -> Array:
    """Return the Euclidean projection of the row onto the simplex: `max(0, l_j - tau)`, where tau makes it sum to 1.

    Logits far below the largest get exactly 0. `extra` `[h 1 n]` counts as n more keys; their weights are left out.

    Source: Martins and Astudillo 2016, "From Softmax to Sparsemax", algorithm 1.
    """
    if extra is not None:
        columns = np.broadcast_to(extra, (*masked.shape[:-1], extra.shape[-1])).astype(masked.dtype)
        return sparsemax(np.concatenate([masked, columns], axis=-1))[..., : masked.shape[-1]]
    if not masked.size:
        return masked
    largest = masked.max(axis=-1, keepdims=True, initial=-np.inf)
    shifted = widen(masked - np.where(np.isneginf(largest), largest.dtype.type(0), largest))
    clipped = np.maximum(shifted, shifted.dtype.type(-2))  # a logit below -1 gets weight 0 anyway; this removes -inf
    descending = -np.sort(-clipped, axis=-1)
    count = np.arange(1, masked.shape[-1] + 1, dtype=shifted.dtype)
    sums = np.cumsum(descending, axis=-1)
    support_size = (1 + count * descending > sums).sum(axis=-1, keepdims=True)
    tau = (np.take_along_axis(sums, np.maximum(support_size - 1, 0), axis=-1) - 1) / np.maximum(support_size, 1)
    return np.where(np.isneginf(largest), 0, np.maximum(clipped - tau, 0)).astype(masked.dtype)


def twin(logits: Vector, extras: Vector = ()) -> list[float]:
    """Return `max(0, l_j - tau)`, where tau makes it sum to 1; tau is found by repeatedly dropping logits below it."""
    support = [logit for logit in (*logits, *extras) if logit > -math.inf]
    while support:
        tau = (math.fsum(support) - 1) / len(support)
        kept = [logit for logit in support if logit > tau]
        if len(kept) == len(support):
            return [max(0.0, logit - tau) for logit in logits]
        support = kept
    return [0.0] * len(logits)


NORMALIZER = Normalizer(weigh=sparsemax, twin=twin, takes_extra=True, sums_to_one=True, ignores_shift=True)

EXAMPLE = Example(
    settings={},
    given=((0.5, 0.0, -math.inf), (2.0, 0.0, 0.0), (-math.inf, -math.inf, -math.inf)),
    outcome=((0.75, 0.25, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
    outside=Example(
        settings={},
        given=((-2.0, 0.0, 0.5),),
        outcome=((0.0, 0.25, 0.75),),
        decimals=4,
        source="entmax, README: sparsemax of [-2, 0, 0.5]",
    ),
)
