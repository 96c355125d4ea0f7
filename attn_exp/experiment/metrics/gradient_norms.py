"""How much a change of logits, queries, keys and values moves the answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.gradients import gradient
from attn_exp.experiment.metrics.metric import Metric, NotFormedError, Subject, finite_weights, mean_seen, stage


def jacobian_norm(weights: Array) -> Array:
    """Return the largest singular value of `diag(w) - w w^T` of each row: at most 1/2, and 0 where one key takes all.

    It is how much softmax lets a change of logits through. Source: Kim et al. 2021, "The Lipschitz Constant of
    Self-Attention", section 3.
    """
    rows = weights.reshape(-1, weights.shape[-1])
    norms = [np.linalg.norm(np.diag(row) - np.outer(row, row), 2) for row in rows]
    return np.array(norms).reshape(weights.shape[:-1])


def gradient_norm(which: int) -> Callable[[Subject], float]:
    """Return the measure of one gradient, of q, k or v: the norm of that of `|context|^2 / 2`."""

    def norm(subject: Subject) -> float:
        rules = subject.settled.rules
        if subject.settled.member.reference != "logits" or rules.normalizer.slope is None or rules.pairing:
            raise NotFormedError
        if subject.settled.empty != "zeros" and not subject.allowed().any(axis=-1).all():
            raise NotFormedError  # the formula knows rows without keys as zeros alone
        q, k, v, context = (stage(subject.trace, name) for name in ("q", "k", "v", "context"))
        return float(np.linalg.norm(gradient(q, k, v, rules, context)[which]))

    return norm


def mean_jacobian_norm(subject: Subject) -> float:
    """Return the mean norm of the Jacobian of a softmax; other normalizers have another Jacobian."""
    if subject.settled.rules.normalizer.name != "softmax":
        raise NotFormedError
    return mean_seen(jacobian_norm, finite_weights(subject))


metric = partial(Metric, place=11)

METRICS = (
    metric(
        "jacobian_norm",
        mean_jacobian_norm,
        meaning="how much softmax lets a change of logits through: at most 1/2",
        source='Kim et al. 2021, "The Lipschitz Constant of Self-Attention", section 3',
    ),
    metric(
        "gradient_q",
        gradient_norm(0),
        meaning="the gradient of half the squared context for the queries",
        unit="norm",
    ),
    metric(
        "gradient_k",
        gradient_norm(1),
        meaning="the gradient of half the squared context for the keys",
        unit="norm",
    ),
    metric(
        "gradient_v",
        gradient_norm(2),
        meaning="the gradient of half the squared context for the values",
        unit="norm",
    ),
)
