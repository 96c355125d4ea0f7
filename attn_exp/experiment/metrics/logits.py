"""The size of logits, how weights sharpen as logits grow, and how much a change of logits changes the output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from attn_exp import forms
from attn_exp.arrays import Array
from attn_exp.experiment.metrics.errors import largest_finite_error
from attn_exp.experiment.metrics.metric import Metric, Subject, finite_weights, get_stage, mean_seen, require_formed
from attn_exp.experiment.row import Comparison, find_settled
from attn_exp.forms import steps
from attn_exp.forms.pipeline import Setup
from attn_exp.forms.steps import repeat_heads
from attn_exp.forms.trace import Trace, entropy
from attn_exp.rules.normalizers.softmax import softmax
from attn_exp.rules.rules import Rules


def drop_infinite(numbers: Array) -> Array:
    finite = numbers[np.isfinite(numbers)]
    require_formed(finite.size > 0)
    return finite


def expected_variance(q: Array, k: Array) -> float:
    """Return `d mean(q^2) mean(k^2)`: the variance of `q . k` if all entries were independent with mean zero.

    `q` is `[h t d]`, `k` is `[g s d]`. The variance grows with d, which is why scores are divided by sqrt(d). Source:
    Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1, footnote 4.
    """
    return float(q.shape[-1] * np.mean(q**2) * np.mean(k**2))


def log_sum_exp(masked: Array) -> Array:
    """Return `ln sum_j exp(l_j)` of each row; -inf if the query sees no key.

    Sources: FlashAttention-2, section 3.1, which merges partial outputs with the log-sum-exp; PyTorch FlexAttention,
    which also returns -inf for rows without keys.
    """
    largest = masked.max(axis=-1, keepdims=True, initial=-np.inf)
    anchor = np.where(np.isneginf(largest), 0, largest)
    sums = np.exp(masked - anchor).sum(axis=-1)
    return np.asarray(np.log(sums, where=sums > 0, out=np.full_like(sums, -np.inf)) + anchor[..., 0])


def log_sums(trace: Trace) -> Array:
    """Return the log-sum-exp of each row, `[h t]`, computed from the masked logits if the form did not compute it."""
    return log_sum_exp(get_stage(trace, "masked")) if trace.lse is None else trace.lse


# How weights sharpen: the entropy as a function of the multiplier of the scores

SAME_WEIGHTS = 1e-12
"""Weights that differ by no more than this count as equal."""


class Split(NamedTuple):
    """The parts of weights that equal `softmax(own * scores + rest)`.

    `scores`: the scores, `[h t s]`.
    `rest`: what is added to the logits, `[h t s]`; -inf for masked keys.
    `own`: the multiplier of the scores in this run, which a mistake may have changed.
    `standard`: the usual multiplier, `1 / sqrt(d)`.
    """

    scores: Array
    rest: Array
    own: float
    standard: float


def split_weights(comparison: Comparison, variant: str) -> Split | None:
    """Split a variant's weights into the parts of `softmax(multiplier * scores + rest)`.

    Return None if the form did not compute the scores, or if the weights are not such a softmax. They are not if a rule
    changes logits nonlinearly or adds an extra logit, or if a mistake makes the logits no multiple of the scores.
    """
    trace = comparison.traces[variant]
    if trace.scores is None or trace.logits is None or trace.masked is None or trace.weights is None:
        return None
    is_bent = trace.capped is not None and not np.array_equal(trace.capped, trace.logits)
    if is_bent or not np.allclose(softmax(trace.masked), trace.weights, rtol=0, atol=SAME_WEIGHTS):
        return None
    multiplier = find_multiplier(trace.logits, trace.scores, find_settled(comparison, variant).multiplier)
    if multiplier is None:
        return None
    rest = np.where(np.isneginf(trace.masked), -np.inf, trace.masked - trace.logits)
    return Split(trace.scores, rest, multiplier, standard_multiplier(trace))


def find_multiplier(logits: Array, scores: Array, configured: float) -> float | None:
    """Return the multiplier of the scores: the configured one, or a different one that a mistake used.

    Return None if the logits are not a multiple of the scores.
    """
    largest = np.unravel_index(np.argmax(np.abs(scores)), scores.shape) if scores.size else ()
    measured = float(logits[largest] / scores[largest]) if scores.size and scores[largest] else configured
    tolerance = 100 * float(np.finfo(logits.dtype).eps)
    with np.errstate(invalid="ignore"):
        fitting = (
            multiplier
            for multiplier in (configured, measured)
            if np.allclose(logits, multiplier * scores, tolerance, tolerance, equal_nan=True)
        )
        return next(fitting, None)


def standard_multiplier(trace: Trace) -> float:
    """Return `1 / sqrt(d)`, where d is the size of one head's queries."""
    return 1.0 if trace.q is None else 1 / math.sqrt(trace.q.shape[-1])


POINTS, MOST_WEIGHTS = 49, 1_000_000
"""The number of multipliers per curve, and the maximum number of weights to compute for a curve. If all queries would
need more, the curve uses evenly spaced queries."""


class Curve(NamedTuple):
    """The mean entropy of weights, in nats, as a function of the multiplier of the scores.

    `multipliers`, `entropy`: the points of the curve, `[m]` each.
    `own`, `standard`: as in `Split`.
    """

    title: str
    multipliers: Array
    entropy: Array
    own: float
    standard: float


def make_curves(splits: Sequence[tuple[str, Split]]) -> tuple[Curve, ...]:
    marked = [mark for _, split in splits for mark in (split.own, split.standard) if mark > 0] or [1.0]
    multipliers = np.geomspace(min(marked) / 32, max(marked) * 32, POINTS)
    return tuple(
        Curve(title, multipliers, mean_entropy(split, multipliers), split.own, split.standard)
        for title, split in splits
    )


def mean_entropy(split: Split, multipliers: Array) -> Array:
    """Return the mean entropy of `softmax(m * scores + rest)` for each m, over queries that see a key."""
    heads, queries, keys = split.scores.shape
    most_rows = max(2, MOST_WEIGHTS // max(1, len(multipliers) * heads * keys))
    rows = np.linspace(0, queries - 1, min(queries, most_rows)).round().astype(int)  # evenly spaced
    logits = multipliers[:, None, None, None] * split.scores[:, rows] + split.rest[:, rows]
    seen = np.isfinite(split.rest[:, rows]).any(axis=-1)
    entropies = entropy(softmax(logits))
    return np.asarray(entropies.mean(axis=(1, 2)) if seen.all() or not seen.any() else entropies[:, seen].mean(axis=1))


# Derivatives of attention, from their formulas

TINY = 1e-30
"""The size of an imaginary step. Its square is too small to matter, so the derivative is exact to the last digit."""


def bend_slope(stages: Trace, rules: Rules) -> Array:
    """Return the derivative of the `bend` of all score rules at the logits, computed with a complex step.

    With `bend_last`, rules bend the masked logits, so the result is the derivative there. At -inf, it is 0.

    Source: Squire and Trapp 1998, "Using Complex Variables to Estimate Derivatives of Real Functions".
    """
    assert stages.q is not None and stages.k is not None and stages.logits is not None
    logits = stages.logits
    if rules.bend_last:
        setup = Setup.of_heads(rules, stages.q, stages.k)
        logits = steps.forbid(setup, steps.biased(setup, logits), steps.allowed(setup))
    is_masked = np.isneginf(logits)
    bent = np.where(is_masked, 0, logits) + 1j * TINY
    for rule in rules.scores:
        bent = rule.bend(bent)
    return np.where(is_masked, 0, bent.imag / TINY)


def gradient(q: Array, k: Array, v: Array, rules: Rules, received: Array) -> tuple[Array, Array, Array]:
    """Return the gradients dq, dk, dv of `sum(received * context)`, where `received` is `[h t e]`.

    With r for `received`, the formulas for softmax are `dv = w^T r`, `dw = r v^T`, `dl = w (dw - sum_j w_j dw_j)`,
    `dq = scale dl k`, `dk = scale dl^T q`. The gradients of query heads that share keys are added.

    Source: Dao et al. 2022, "FlashAttention", appendix B.2.
    """
    stages = forms.form("matrix").attend(q, k, v, rules)
    assert stages.weights is not None and stages.logits is not None
    heads, groups, weights = len(q), len(k), stages.weights
    weight_gradient = received @ repeat_heads(v, heads).swapaxes(-1, -2)
    assert rules.normalizer.slope is not None
    score_gradient = rules.scale * rules.normalizer.slope(weights, weight_gradient) * bend_slope(stages, rules)
    dq = score_gradient @ repeat_heads(k, heads)
    dk, dv = score_gradient.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ received
    summed = [array.reshape(groups, heads // groups, *array.shape[1:]).sum(axis=1) for array in (dk, dv)]
    return np.asarray(dq), summed[0], summed[1]


def jacobian_norm(weights: Array) -> Array:
    """Return how much the softmax of each row can amplify a change of logits: at most 1/2, 0 if one key has all weight.

    It is the largest singular value of `diag(w) - w w^T`. Source: Kim et al. 2021, "The Lipschitz Constant of
    Self-Attention", section 3.
    """
    rows = weights.reshape(-1, weights.shape[-1])
    norms = [np.linalg.norm(np.diag(row) - np.outer(row, row), 2) for row in rows]
    return np.array(norms).reshape(weights.shape[:-1])


def gradient_norm(index: int, subject: Subject) -> float:
    """Return the norm of the gradient of `|context|^2 / 2` with respect to q, k or v (`index` 0, 1 or 2)."""
    rules = subject.settled.rules
    require_formed(
        subject.settled.member.reference == "logits" and rules.normalizer.slope is not None and not rules.pairing
    )
    # the formula assumes zeros in rows without keys
    require_formed(subject.settled.empty == "zeros" or bool(subject.allowed().any(axis=-1).all()))
    q, k, v, context = (get_stage(subject.trace, name) for name in ("q", "k", "v", "context"))
    return float(np.linalg.norm(gradient(q, k, v, rules, context)[index]))


def mean_jacobian_norm(subject: Subject) -> float:
    require_formed(subject.settled.rules.normalizer.name == "softmax")
    return mean_seen(jacobian_norm, finite_weights, subject)


metric, slope, summed = (partial(Metric, place=place) for place in (9, 11, 12))

METRICS = (
    metric(
        "logit_min",
        lambda subject: drop_infinite(get_stage(subject.trace, "masked")).min(),
        meaning="the smallest logit that is not masked",
    ),
    metric(
        "logit_max",
        lambda subject: drop_infinite(get_stage(subject.trace, "masked")).max(),
        meaning="the largest logit",
    ),
    metric(
        "logit_std",
        lambda subject: drop_infinite(get_stage(subject.trace, "masked")).std(),
        meaning="the standard deviation of the logits",
    ),
    metric(
        "score_variance",
        lambda subject: get_stage(subject.trace, "scores").var(),
        meaning="the variance of the scores, before scaling",
    ),
    metric(
        "expected_variance",
        lambda subject: expected_variance(get_stage(subject.trace, "q"), get_stage(subject.trace, "k")),
        meaning="the variance of the scores if all entries were independent",
        source="Vaswani et al. 2017, section 3.2.1, footnote 4",
    ),
    summed(
        "log_sum_exp",
        lambda subject: drop_infinite(log_sums(subject.trace)).mean(),
        meaning="the mean log-sum-exp of the rows, with which partial outputs can be merged",
        source="FlashAttention-2, section 3.1",
    ),
    summed(
        "log_sum_exp_error",
        lambda subject: largest_finite_error(log_sums(subject.trace), log_sums(subject.exact)),
        meaning="the largest error of the log-sum-exp",
    ),
    slope(
        "jacobian_norm",
        mean_jacobian_norm,
        meaning="how much a change of logits can change the weights: at most 1/2",
        source='Kim et al. 2021, "The Lipschitz Constant of Self-Attention", section 3',
    ),
    slope(
        "gradient_q",
        partial(gradient_norm, 0),
        meaning="the gradient of half the squared context with respect to the queries",
        unit="norm",
    ),
    slope(
        "gradient_k",
        partial(gradient_norm, 1),
        meaning="the gradient of half the squared context with respect to the keys",
        unit="norm",
    ),
    slope(
        "gradient_v",
        partial(gradient_norm, 2),
        meaning="the gradient of half the squared context with respect to the values",
        unit="norm",
    ),
)
