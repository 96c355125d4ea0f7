"""The logarithm of the sum that softmax divides by."""

from __future__ import annotations

from functools import partial

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.errors import largest_error
from attn_exp.experiment.metrics.metric import Metric, Subject, mean, stage
from attn_exp.forms.trace import Trace


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


metric = partial(Metric, place=12)

METRICS = (
    metric(
        "log_sum_exp",
        lambda subject: mean(finite_sums(subject)),
        meaning="the logarithm of the sum of exponentials of a row, which merges parts of an answer",
        source="FlashAttention-2, section 3.1",
    ),
    metric(
        "log_sum_exp_error",
        sums_error,
        meaning="its largest difference from the exact one",
    ),
)
