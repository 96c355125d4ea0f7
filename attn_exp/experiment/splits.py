"""Weights taken apart: the scores they come from, and what is added after scaling."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.variant import Settled

SAME_WEIGHTS = 1e-12
"""Weights of two variants that differ by no more than this are shown once."""


class Split(NamedTuple):
    """Weights as `softmax(own * scores + rest)`: arrays `[h t s]`, where `rest` is -inf at masked places.

    `own` is the multiplier of the run, `standard` is `1 / sqrt(d)` of one head.
    """

    scores: Array
    rest: Array
    own: float
    standard: float


def split(comparison: Comparison, variant: str) -> Split | None:
    """Return what a variant's weights are the softmax of.

    None where the scores were not formed, or where the weights are no such softmax: a rule that bends logits or takes a
    share of the sum does something else at another multiplier.
    """
    trace = comparison.traces[variant]
    if trace.scores is None or trace.logits is None or trace.masked is None or trace.weights is None:
        return None
    if trace.capped is not None and not np.array_equal(trace.capped, trace.logits):
        return None
    if not np.allclose(softmax(trace.masked), trace.weights, rtol=0, atol=SAME_WEIGHTS):
        return None
    rest = np.where(np.isneginf(trace.masked), -np.inf, trace.masked - trace.logits)
    settled = settled_as(comparison, variant)
    return Split(trace.scores, rest, settled.multiplier, standard_multiplier(comparison, variant))


def settled_as(comparison: Comparison, variant: str) -> Settled:
    """Return the settings of a variant by its name."""
    return next(settled for settled in comparison.variants if settled.name == variant)


def standard_multiplier(comparison: Comparison, variant: str) -> float:
    """Return `1 / sqrt(d)`, where d is the size of one head's queries."""
    queries = comparison.traces[variant].q
    return 1.0 if queries is None else 1 / math.sqrt(queries.shape[-1])


def softmax(logits: Array) -> Array:
    """Return the weights of logits along the last axis; zeros where every logit is -inf."""
    largest = logits.max(axis=-1, keepdims=True)
    powers = np.exp(logits - np.where(np.isfinite(largest), largest, 0))
    total = powers.sum(axis=-1, keepdims=True)
    return np.asarray(powers / np.where(total == 0, 1, total))
