"""How large logits are, and the logarithm of the sum that softmax divides by."""

from __future__ import annotations

from functools import partial

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.errors import largest_error
from attn_exp.experiment.metrics.metric import Metric, NotFormedError, Subject, mean, stage
from attn_exp.forms.trace import Trace


def finite_logits(subject: Subject) -> Array:
    """Return the logits that no mask has hidden.

    Raises:
        NotFormedError: the masks hide all.
    """
    masked = stage(subject.trace, "masked")
    finite = masked[np.isfinite(masked)]
    if not finite.size:
        raise NotFormedError
    return finite


def expected_variance(q: Array, k: Array) -> float:
    """Return `d mean(q^2) mean(k^2)`: the variance of `q . k` if all their numbers were independent with mean zero.

    `q` `[h t d]`, `k` `[g s d]`. It grows with d, which dividing the logits by sqrt(d) undoes. Source: Vaswani et al.
    2017, "Attention Is All You Need", section 3.2.1, footnote 4.
    """
    return float(q.shape[-1] * np.mean(q**2) * np.mean(k**2))


def log_sum_exp(masked: Array) -> Array:
    """Return `ln sum_j exp(l_j)` of each row; -inf where it sees nothing.

    Source: FlashAttention-2, section 3.1: what merges parts of an answer; FlexAttention returns -inf for empty rows.
    """
    largest = masked.max(axis=-1, keepdims=True, initial=-np.inf)
    anchor = np.where(np.isneginf(largest), 0, largest)
    sums = np.exp(masked - anchor).sum(axis=-1)
    return np.asarray(np.log(sums, where=sums > 0, out=np.full_like(sums, -np.inf)) + anchor[..., 0])


def sums_of(trace: Trace) -> Array:
    """Return the logarithm of each row's sum of exponentials `[h t]`: as the form has it, or from its masked logits."""
    return log_sum_exp(stage(trace, "masked")) if trace.lse is None else trace.lse


def finite_sums(subject: Subject) -> Array:
    """Return the log-sum-exp of each row that sees anything."""
    sums = sums_of(subject.trace)
    return sums[np.isfinite(sums)]


def sums_error(subject: Subject) -> float:
    """Return the largest difference of the log-sum-exps from the exact ones; infinite where one alone is finite."""
    mine, exact = (sums_of(trace) for trace in (subject.trace, subject.exact))
    finite = np.isfinite(exact)
    if (np.isfinite(mine) != finite).any():
        return float("inf")
    return largest_error(mine[finite], exact[finite])


metric = partial(Metric, place=9)

METRICS = (
    metric(
        "logit_min",
        lambda subject: finite_logits(subject).min(),
        meaning="the least logit that no mask hides",
    ),
    metric(
        "logit_max",
        lambda subject: finite_logits(subject).max(),
        meaning="the largest logit",
    ),
    metric(
        "logit_std",
        lambda subject: finite_logits(subject).std(),
        meaning="their standard deviation",
    ),
    metric(
        "score_variance",
        lambda subject: stage(subject.trace, "scores").var(),
        meaning="the variance of the scores, before scaling",
    ),
    metric(
        "expected_variance",
        lambda subject: expected_variance(stage(subject.trace, "q"), stage(subject.trace, "k")),
        meaning="the variance that the scores would have were all numbers independent",
        source="Vaswani et al. 2017, section 3.2.1, footnote 4",
    ),
    partial(Metric, place=12)(
        "log_sum_exp",
        lambda subject: mean(finite_sums(subject)),
        meaning="the logarithm of the sum of exponentials of a row, which merges parts of an answer",
        source="FlashAttention-2, section 3.1",
    ),
    partial(Metric, place=12)(
        "log_sum_exp_error",
        sums_error,
        meaning="its largest difference from the exact one",
    ),
)
