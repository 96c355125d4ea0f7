"""How far weights and answers are from those of the row that all are compared with, and heads from each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.metric import Metric, NotFormedError, Subject, mean, outputs, sees, weights
from attn_exp.experiment.metrics.spread import shares, sum_to_one
from attn_exp.forms.trace import as_they_lie


def cosines(left: Array, right: Array) -> Array:
    """Return `<x, y> / (|x| |y|)` of each two flattened arrays `[n ...] -> [n]`.

    It is 1 for two zero arrays, 0 if only one is zero, and NaN where one is not finite.
    """
    with np.errstate(all="ignore"):
        one, other = norms(left), norms(right)
        products = np.vecdot(*(side.reshape(len(side), -1) for side in (left, right)))
        angles = products.astype(np.float64) / (one * other)
        return np.asarray(np.where(one * other == 0, one == other, angles))


def norms(arrays: Array) -> Array:
    """Return the length of each of many flattened arrays, `[n ...] -> [n]`, as `numpy.linalg.norm` of each."""
    numbers = as_they_lie(arrays)
    return np.asarray(np.sqrt(np.vecdot(numbers, numbers)), np.float64)


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


def mean_divergence(divergence: Callable[[Array, Array], Array], subject: Subject) -> float:
    """Return the mean divergence of this variant's rows of weights from those of the row compared with.

    Both must share out 1 among as many heads; a query that sees no key in one of them is left out.
    """
    first = weights(subject._replace(trace=subject.first))
    if first.shape != weights(subject).shape or not sum_to_one(first).all():
        raise NotFormedError
    mine = shares(subject)
    return mean(divergence(first, mine)[sees(first) & sees(mine)])


def row_cosine(answer: Array, expected: Array) -> Array:
    """Return the cosine of each row of two outputs `[t m]`. Source: Zhang et al. 2025, "SageAttention", section 4.1."""
    return cosines(answer, expected)


def head_divergence(weights: Array) -> float:
    """Return the mean Jensen-Shannon divergence between every two heads: 0 where all heads do the same.

    Source: Clark et al. 2019, "What Does BERT Look At?", section 6; NaN for a single head.
    """
    pairs = [(one, other) for place, one in enumerate(weights) for other in weights[place + 1 :]]
    rows = [js(one, other)[sees(one) & sees(other)] for one, other in pairs]
    return mean(np.concatenate(rows)) if rows else float("nan")


relative = partial(Metric, place=3, relative=True)

METRICS = (
    relative(
        "kl",
        partial(mean_divergence, kl),
        meaning="what is lost when the weights stand for those of the row compared with",
        unit="nats, to the row compared with",
        source="Kullback and Leibler 1951",
    ),
    relative(
        "js",
        partial(mean_divergence, js),
        meaning="the same, both ways, to their mean",
        unit="nats, to the row compared with",
        source="Lin 1991",
    ),
    relative(
        "total_variation",
        partial(mean_divergence, total_variation),
        meaning="the share of its weight that a row moves",
        unit="to the row compared with",
        source='Jain and Wallace 2019, "Attention is not Explanation", section 3',
    ),
    relative(
        "cosine_mean",
        lambda subject: row_cosine(*outputs(subject)).mean(),
        meaning="cosine of the angle between two rows of output, mean",
        unit="to the row compared with",
        source='Zhang et al. 2025, "SageAttention", section 4.1',
    ),
    relative(
        "cosine_least",
        lambda subject: row_cosine(*outputs(subject)).min(),
        meaning="cosine of the angle between two rows of output, least",
        unit="to the row compared with",
        source='Zhang et al. 2025, "SageAttention", section 4.1',
    ),
    partial(Metric, place=7)(
        "head_divergence",
        lambda subject: head_divergence(shares(subject)),
        meaning="Jensen-Shannon divergence between two heads: 0 where all do the same",
        unit="nats",
        source="Clark et al. 2019, section 6",
    ),
)
