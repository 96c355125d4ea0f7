"""How attention sharpens: weights taken apart into scores and the rest, and their entropy over the multiplier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.comparison import Comparison, settled_as
from attn_exp.forms.trace import entropy
from attn_exp.rules.normalizers.softmax import softmax

SAME_WEIGHTS = 1e-12
"""Weights of two variants that differ by no more than this are shown once."""


class Split(NamedTuple):
    """Weights as `softmax(own * scores + rest)`: arrays `[h t s]`, where `rest` is -inf at masked places.

    `own` is what the run multiplied its scores by, also by mistake; `standard` is `1 / sqrt(d)` of one head.
    """

    scores: Array
    rest: Array
    own: float
    standard: float


def split(comparison: Comparison, variant: str) -> Split | None:
    """Return what a variant's weights are the softmax of.

    None where the scores were not formed, or where the weights are no such softmax: a rule that bends logits or takes a
    share of the sum does something else at another multiplier, and logits may be no multiple of the scores by mistake.
    """
    trace = comparison.traces[variant]
    if trace.scores is None or trace.logits is None or trace.masked is None or trace.weights is None:
        return None
    if trace.capped is not None and not np.array_equal(trace.capped, trace.logits):
        return None
    if not np.allclose(softmax(trace.masked), trace.weights, rtol=0, atol=SAME_WEIGHTS):
        return None
    own = multiple(trace.logits, trace.scores, settled_as(comparison, variant).multiplier)
    if own is None:
        return None
    rest = np.where(np.isneginf(trace.masked), -np.inf, trace.masked - trace.logits)
    return Split(trace.scores, rest, own, standard_multiplier(comparison, variant))


def multiple(logits: Array, scores: Array, said: float) -> float | None:
    """Return what scores were multiplied by, which is what is said unless that is a mistake; None where by nothing."""
    largest = np.unravel_index(np.argmax(np.abs(scores)), scores.shape) if scores.size else ()
    found = float(logits[largest] / scores[largest]) if scores.size and scores[largest] else said
    close = 100 * float(np.finfo(logits.dtype).eps)
    for own in (said, found):
        with np.errstate(invalid="ignore"):
            if np.allclose(logits, own * scores, rtol=close, atol=close, equal_nan=True):
                return own
    return None


def standard_multiplier(comparison: Comparison, variant: str) -> float:
    """Return `1 / sqrt(d)`, where d is the size of one head's queries."""
    queries = comparison.traces[variant].q
    return 1.0 if queries is None else 1 / math.sqrt(queries.shape[-1])


MOST_WEIGHTS = 1_000_000
"""How many weights a curve may form; longer problems show evenly spaced queries."""

POINTS = 49
"""How many multipliers a curve has."""


class Curve(NamedTuple):
    """How the mean entropy `[m]` of some weights falls as the multiplier `[m]` of its scores grows, in nats."""

    title: str
    multipliers: Array
    entropy: Array
    own: float
    standard: float


def curves(named: Sequence[tuple[str, Split]]) -> tuple[Curve, ...]:
    """Return a curve for each of some weights taken apart and their titles, over multipliers around `1 / sqrt(d)`."""
    marks = [mark for _, split in named for mark in (split.own, split.standard) if mark > 0] or [1.0]
    multipliers = np.geomspace(min(marks) / 32, max(marks) * 32, POINTS)
    return tuple(
        Curve(title, multipliers, mean_entropy(split, multipliers), split.own, split.standard) for title, split in named
    )


def mean_entropy(split: Split, multipliers: Array) -> Array:
    """Return the mean entropy of `softmax(m * scores + rest)` for each multiplier m, of queries that see a key."""
    heads, queries, keys = split.scores.shape
    most = max(2, MOST_WEIGHTS // max(1, len(multipliers) * heads * keys))
    rows = np.linspace(0, queries - 1, min(queries, most)).round().astype(int)  # evenly spaced
    logits = multipliers[:, None, None, None] * split.scores[:, rows] + split.rest[:, rows]
    seen = np.isfinite(split.rest[:, rows]).any(axis=-1)
    entropies = entropy(softmax(logits))
    return np.asarray(entropies.mean(axis=(1, 2)) if seen.all() or not seen.any() else entropies[:, seen].mean(axis=1))
