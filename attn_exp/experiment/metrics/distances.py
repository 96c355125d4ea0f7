"""Where queries look: how far, back, at themselves, at the token before."""

from __future__ import annotations

from functools import partial

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.metric import Metric, mean, one_sequence


def distance(weights: Array, offset: int = 0) -> Array:
    """Return `sum_j w_j |i - j|` of each row, in tokens.

    Source: Vig and Belinkov 2019, "Analyzing the Structure of Attention", section 4.2.
    """
    return np.asarray((weights * np.abs(ahead(weights, offset))).sum(axis=-1))


def looks_back(weights: Array, offset: int = 0) -> Array:
    """Return the weight that each row gives to earlier keys."""
    return np.asarray(np.where(ahead(weights, offset) < 0, weights, 0).sum(axis=-1))


def at_distance(weights: Array, steps: int, offset: int = 0) -> float:
    """Return the share of all weight that goes to the key `steps` after the query (0: itself, -1: the one before).

    `sum_ij w_ij [j = i + steps] / sum_ij w_ij`, the mean of the heads: a query without such a key counts as well.
    Source: TransformerLens, `head_detector.py`, `error_measure="mul"`, whose previous-token pattern is that of -1.
    """
    total = weights.sum(axis=(-1, -2))
    on_pattern = (weights * (ahead(weights, offset) == steps)).sum(axis=(-1, -2))
    return mean(on_pattern[total > 0] / total[total > 0])


def ahead(weights: Array, offset: int) -> Array:
    """Return `key - query` `[t s]`, as positions."""
    return np.asarray(np.arange(weights.shape[-1]) - np.arange(weights.shape[-2])[:, None] - offset)


metric = partial(Metric, place=6)

METRICS = (
    metric(
        "distance",
        lambda subject: distance(one_sequence(subject), subject.offset).mean(),
        meaning="how far away the keys are that a query looks at",
        unit="tokens",
        source="Vig and Belinkov 2019, section 4.2",
    ),
    metric(
        "looks_back",
        lambda subject: looks_back(one_sequence(subject), subject.offset).mean(),
        meaning="the weight on earlier keys",
    ),
    metric(
        "on_itself",
        lambda subject: at_distance(one_sequence(subject), 0, subject.offset),
        meaning="the share of all weight on the query's own token",
    ),
    metric(
        "on_previous",
        lambda subject: at_distance(one_sequence(subject), -1, subject.offset),
        meaning="the share of all weight on the token before, over all queries",
        source='TransformerLens, head_detector.py, error_measure="mul"',
    ),
)
