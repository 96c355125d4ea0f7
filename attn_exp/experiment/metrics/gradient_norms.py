"""Derivatives of attention from their formulas, and how much a change of logits, q, k and v changes the output."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from attn_exp import forms
from attn_exp.arrays import Array
from attn_exp.experiment.metrics.metric import Metric, NotFormedError, Subject, finite_weights, mean_seen, stage
from attn_exp.forms import steps
from attn_exp.forms.pipeline import At
from attn_exp.forms.steps import repeat_heads
from attn_exp.forms.trace import Trace
from attn_exp.rules.rules import Rules

TINY = 1e-30
"""An imaginary step so small that its square vanishes: the derivative is exact to the last digit."""


def bend_slope(stages: Trace, rules: Rules) -> Array:
    """Return the derivative of all score bends at their logits, by a complex step.

    If bends come last they bend masked logits, where those at -inf are constant.

    Source: Squire and Trapp 1998, "Using Complex Variables to Estimate Derivatives of Real Functions".
    """
    assert stages.q is not None and stages.k is not None and stages.logits is not None
    logits = stages.logits
    if rules.bend_last:
        at = At.of_heads(rules, stages.q, stages.k)
        logits = steps.forbid(at, steps.biased(at, logits), steps.allowed(at))
    fixed = np.isneginf(logits)
    bent: Any = np.where(fixed, 0, logits) + 1j * TINY
    for rule in rules.scores:
        bent = rule.bend(bent)
    return np.where(fixed, 0, bent.imag / TINY)


def gradient(q: Array, k: Array, v: Array, rules: Rules, received: Array) -> tuple[Array, Array, Array]:
    """Return the gradients dq, dk, dv of `sum(received * context)`, with `received` `[h t e]`.

    `dv = w^T r`; `dw = r v^T`; `dl = w (dw - sum_j w_j dw_j)`; `dq = scale dl k`; `dk = scale dl^T q`; the gradients of
    heads that share keys are added. Source: Dao et al. 2022, "FlashAttention", appendix B.2.
    """
    stages = forms.form("matrix").attend(q, k, v, rules)
    assert stages.weights is not None and stages.logits is not None
    heads, groups, weights = len(q), len(k), stages.weights
    given = received @ repeat_heads(v, heads).swapaxes(-1, -2)
    assert rules.normalizer.slope is not None
    turned = rules.scale * rules.normalizer.slope(weights, given) * bend_slope(stages, rules)
    dq = turned @ repeat_heads(k, heads)
    dk, dv = turned.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ received
    shared = [array.reshape(groups, heads // groups, *array.shape[1:]).sum(axis=1) for array in (dk, dv)]
    return np.asarray(dq), shared[0], shared[1]


def jacobian_norm(weights: Array) -> Array:
    """Return the largest singular value of `diag(w) - w w^T` of each row: at most 1/2, 0 if one key has all the weight.

    It bounds how much softmax amplifies a change of logits. Source: Kim et al. 2021, "The Lipschitz Constant of
    Self-Attention", section 3.
    """
    rows = weights.reshape(-1, weights.shape[-1])
    norms = [np.linalg.norm(np.diag(row) - np.outer(row, row), 2) for row in rows]
    return np.array(norms).reshape(weights.shape[:-1])


def gradient_norm(which: int) -> Callable[[Subject], float]:
    """Return a measure of the gradient of `|context|^2 / 2` with respect to q, k or v: its norm."""

    def norm(subject: Subject) -> float:
        rules = subject.settled.rules
        if subject.settled.member.reference != "logits" or rules.normalizer.slope is None or rules.pairing:
            raise NotFormedError
        if subject.settled.empty != "zeros" and not subject.allowed().any(axis=-1).all():
            raise NotFormedError  # the formula assumes zeros in rows without keys
        q, k, v, context = (stage(subject.trace, name) for name in ("q", "k", "v", "context"))
        return float(np.linalg.norm(gradient(q, k, v, rules, context)[which]))

    return norm


def mean_jacobian_norm(subject: Subject) -> float:
    if subject.settled.rules.normalizer.name != "softmax":
        raise NotFormedError
    return mean_seen(jacobian_norm, finite_weights(subject))


metric = partial(Metric, place=11)

METRICS = (
    metric(
        "jacobian_norm",
        mean_jacobian_norm,
        meaning="how much a change of logits changes the weights: at most 1/2",
        source='Kim et al. 2021, "The Lipschitz Constant of Self-Attention", section 3',
    ),
    metric(
        "gradient_q",
        gradient_norm(0),
        meaning="the gradient of half the squared context with respect to the queries",
        unit="norm",
    ),
    metric(
        "gradient_k",
        gradient_norm(1),
        meaning="the gradient of half the squared context with respect to the keys",
        unit="norm",
    ),
    metric(
        "gradient_v",
        gradient_norm(2),
        meaning="the gradient of half the squared context with respect to the values",
        unit="norm",
    ),
)
