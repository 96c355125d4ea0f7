"""How attention sharpens: the entropy of the weights over the multiplier of the scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attn_exp.experiment.metrics.spread import entropy
from attn_exp.report.splits import Split, softmax
from attn_exp.report.views import Panel

Array = NDArray[Any]

MOST_WEIGHTS = 2_000_000
"""How many weights a curve may form; longer problems show evenly spaced queries."""

POINTS = 49
"""How many multipliers a curve has."""


class Curve(NamedTuple):
    """How the mean entropy `[m]` of one panel falls as the multiplier `[m]` of its scores grows, in nats."""

    title: str
    multipliers: Array
    entropy: Array
    own: float
    standard: float


def curves(panels: Sequence[Panel]) -> tuple[Curve, ...]:
    """Return a curve for each panel whose scores are known, over multipliers around `1 / sqrt(d)`."""
    known = [(panel.title, panel.split) for panel in panels if panel.split is not None]
    marks = [mark for _, split in known for mark in (split.own, split.standard) if mark > 0] or [1.0]
    multipliers = np.geomspace(min(marks) / 32, max(marks) * 32, POINTS)
    return tuple(
        Curve(title, multipliers, mean_entropy(split, multipliers), split.own, split.standard) for title, split in known
    )


def mean_entropy(split: Split, multipliers: Array) -> Array:
    """Return the mean entropy of `softmax(m * scores + rest)` for each multiplier m."""
    heads, queries, keys = split.scores.shape
    rows = thinned(queries, MOST_WEIGHTS // max(1, len(multipliers) * heads * keys))
    logits = multipliers[:, None, None, None] * split.scores[:, rows] + split.rest[:, rows]
    return np.asarray(entropy(softmax(logits)).mean(axis=(1, 2)))


def thinned(length: int, most: int) -> Array:
    """Return at most `most`, and at least two, evenly spaced places."""
    return np.unique(np.linspace(0, length - 1, min(length, max(2, most))).round().astype(int))
