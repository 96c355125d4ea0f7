"""How far a variant's weights and answer are from those of the first row."""

from __future__ import annotations

from functools import partial

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.metric import Metric, distributions, outputs


def cosine(left: Array, right: Array) -> float:
    """Return `<x, y> / (|x| |y|)` of two flattened arrays; 1 for two zero arrays, 0 if only one is zero."""
    with np.errstate(over="ignore"):
        lengths = float(np.linalg.norm(left)) * float(np.linalg.norm(right))
    if 0 < lengths < np.inf:
        return float(np.vdot(left, right)) / lengths
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        return float("nan")
    if not np.any(left) or not np.any(right):
        return float(not np.any(left) and not np.any(right))
    return cosine(left / np.abs(left).max(), right / np.abs(right).max())  # squares beyond what a float holds


def kl(p: Array, q: Array) -> Array:
    """Return `sum_j p_j ln(p_j / q_j)` of each row, in nats; infinite where q gives nothing to a key of p's.

    Source: Kullback and Leibler 1951, "On Information and Sufficiency".
    """
    with np.errstate(divide="ignore"):
        logs = np.log(np.where(p > 0, p, 1)) - np.log(np.where(p > 0, q, 1))
    return np.asarray(np.where(p > 0, p * logs, 0.0).sum(axis=-1))


def js(p: Array, q: Array) -> Array:
    """Return `(kl(p, m) + kl(q, m)) / 2` of each row with m their mean: 0 to ln 2.

    Source: Lin 1991, "Divergence Measures Based on the Shannon Entropy"; between heads: Clark et al. 2019, section 6.
    """
    middle = (p + q) / 2
    return (kl(p, middle) + kl(q, middle)) / 2


def total_variation(p: Array, q: Array) -> Array:
    """Return `sum_j |p_j - q_j| / 2` of each row: 0 to 1.

    Source: Jain and Wallace 2019, "Attention is not Explanation", section 3.
    """
    return np.asarray(np.abs(p - q).sum(axis=-1) / 2)


def row_cosine(answer: Array, expected: Array) -> Array:
    """Return the cosine of each row of two outputs `[t m]`. Source: Zhang et al. 2025, "SageAttention", section 4.1."""
    return np.array([cosine(one, other) for one, other in zip(answer, expected, strict=True)])


metric = partial(Metric, place=3)

METRICS = (
    metric(
        "kl",
        lambda subject: kl(*distributions(subject)).mean(),
        meaning="what is lost when the weights stand for the first row's",
        unit="nats, to row 1",
        source="Kullback and Leibler 1951",
    ),
    metric(
        "js",
        lambda subject: js(*distributions(subject)).mean(),
        meaning="the same, both ways, to their mean",
        unit="nats, to row 1",
        source="Lin 1991",
    ),
    metric(
        "total_variation",
        lambda subject: total_variation(*distributions(subject)).mean(),
        meaning="the share of its weight that a row moves",
        unit="to row 1",
        source='Jain and Wallace 2019, "Attention is not Explanation", section 3',
    ),
    metric(
        "cosine_mean",
        lambda subject: row_cosine(*outputs(subject)).mean(),
        meaning="cosine of the angle between two rows of output, mean",
        unit="to row 1",
        source='Zhang et al. 2025, "SageAttention", section 4.1',
    ),
    metric(
        "cosine_least",
        lambda subject: row_cosine(*outputs(subject)).min(),
        meaning="cosine of the angle between two rows of output, least",
        unit="to row 1",
        source='Zhang et al. 2025, "SageAttention", section 4.1',
    ),
)
