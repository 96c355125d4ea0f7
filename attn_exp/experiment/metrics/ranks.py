"""How many directions the weights and the output really have."""

from __future__ import annotations

from functools import partial

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.metric import Metric, finite_weights, seeing_queries, stage
from attn_exp.forms.trace import entropy


def effective_rank(matrix: Array) -> Array:
    """Return `exp(-sum p ln p)` with p the singular values over their sum, per head.

    Source: Roy and Vetterli 2007, "The Effective Rank: A Measure of Effective Dimensionality".
    """
    values = np.linalg.svd(matrix, compute_uv=False)
    total = values.sum(axis=-1, keepdims=True)
    shares = values / np.where(total == 0, 1, total)
    return np.exp(entropy(shares))


def stable_rank(matrix: Array) -> Array:
    """Return `|A|_F^2 / sigma_1^2`, per head. Source: Rudelson and Vershynin 2007, "Sampling from Large Matrices"."""
    values = np.linalg.svd(matrix, compute_uv=False)
    largest = values.max(axis=-1)
    return np.asarray((values**2).sum(axis=-1) / np.where(largest == 0, 1, largest**2))


def rank_collapse(output: Array) -> float:
    """Return `|X - 1 x^T| / |X|` with x the mean row, in the norm `sqrt(|.|_1 |.|_inf)`: 0 where all tokens are one.

    Source: Dong et al. 2021, "Attention Is Not All You Need", section 2, whose x is the best one in that norm.
    """
    whole, rest = (
        float(np.sqrt(np.linalg.norm(matrix, 1) * np.linalg.norm(matrix, np.inf)))
        for matrix in (output, output - output.mean(axis=0))
    )
    return rest / whole if whole else 0.0


metric = partial(Metric, place=5)

METRICS = (
    metric(
        "effective_rank",
        lambda subject: effective_rank(finite_weights(subject)).mean(),
        meaning="exp of the entropy of the singular values of the weights",
        source="Roy and Vetterli 2007",
    ),
    metric(
        "stable_rank",
        lambda subject: stable_rank(finite_weights(subject)).mean(),
        meaning="the squared norm of the weights over their largest singular value squared",
        source="Rudelson and Vershynin 2007",
    ),
    metric(
        "rank_collapse",
        lambda subject: rank_collapse(stage(subject.trace, "output")[seeing_queries(subject)]),
        meaning="0 where all tokens leave with the same output",
        source='Dong et al. 2021, "Attention Is Not All You Need", section 2',
    ),
)
