"""How much an output differs from the exact output and from the baseline row, and how much heads differ."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.executing import float_info
from attn_exp.experiment.metrics.metric import (
    Metric,
    Subject,
    get_answers_seen,
    get_both_answers,
    get_both_outputs,
    mean,
    require_formed,
    sees,
    weights,
)
from attn_exp.experiment.metrics.spread import shares, sum_to_one
from attn_exp.forms.trace import flatten_in_memory_order


def largest_errors(answers: Array, expected: Array) -> Array:
    """Return `max |answer - expected|` for each of n arrays, `[n ...] -> [n]`, in the units of the output.

    NaN in both arrays counts as no difference; NaN in only one of them counts as an infinite difference.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        differences = np.abs(answers.astype(np.float64, copy=False) - expected)
    if (is_nan := np.isnan(differences)).any():
        both_nan = np.isnan(answers) & np.isnan(expected)
        differences = np.where(both_nan, 0.0, np.where(is_nan, np.inf, differences))
    largest = differences.reshape(len(differences), -1).max(axis=-1, initial=0.0)
    return np.asarray(largest, np.float64)


def largest_error(answer: Array, expected: Array) -> float:
    return float(largest_errors(answer[None], expected[None])[0])


def largest_finite_error(answer: Array, exact: Array) -> float:
    """Return the largest difference at finite numbers; infinite if a number is finite in only one of the arrays."""
    finite = np.isfinite(exact)
    if (np.isfinite(answer) != finite).any():
        return float("inf")
    return float(np.abs(answer.astype(exact.dtype)[finite] - exact[finite]).max(initial=0.0))


def mean_error(answer: Array, expected: Array) -> float:
    """Return `mean |x - ref|`. Source: PyTorch, `test/inductor/test_flex_attention.py`, which compares means."""
    return float(np.abs(answer - expected).mean())


def rms_error(answer: Array, expected: Array) -> float:
    """Return `sqrt(mean (x - ref)^2)`. Source: Shah et al. 2024, "FlashAttention-3", table 3."""
    return float(np.sqrt(np.mean((answer - expected) ** 2)))


def relative_rms(answer: Array, expected: Array) -> float:
    """Return `rms(x - ref) / (rms(ref) + 1e-8)`. Source: fla-org/flash-linear-attention, `fla/utils`."""
    return rms_error(answer, expected) / (float(np.sqrt(np.mean(np.asarray(expected) ** 2))) + 1e-8)


CLOSE = {"float16": (1e-3, 1e-3), "bfloat16": (1.6e-2, 1e-3), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}
"""Relative and absolute tolerances of `torch.testing.assert_close`, by dtype."""


def passes_assert_close(answer: Array, expected: Array, dtype: str = "float64") -> bool:
    """Return whether `|x - ref| <= atol + rtol |ref|` everywhere, as `torch.testing.assert_close` does by default."""
    return np.allclose(answer, expected, *CLOSE[dtype])


def ulp_distances(answers: Array, expected: Array) -> Array:
    """Return the largest distance in ulp (units in the last place) for each of n arrays, `[n ...] -> [n]`.

    The distance is the difference of the integers that `rank_floats` gives. Source: Goldberg 1991, "What Every Computer
    Scientist Should Know About Floating-Point Arithmetic"; `numpy.testing.assert_array_max_ulp`.
    """
    ranks = [rank_floats(array.astype(answers.dtype)) for array in (answers, expected)]
    high, low = np.maximum(*ranks), np.minimum(*ranks)
    units = high.view(np.uint64) - low.view(np.uint64)  # any difference fits an unsigned integer
    return np.asarray(units.reshape(len(units), -1).max(axis=-1, initial=0))


def rank_floats(numbers: Array) -> Array:
    """Return integers in the same order as these floats; consecutive floats become consecutive integers.

    The bits of positive floats, read as integers, have this order already. The bits of negative floats have the reverse
    order.
    """
    size = numbers.dtype.itemsize
    bits = np.ascontiguousarray(numbers).view(f"i{size}").astype(np.int64)
    return np.where(bits < 0, -(2 ** (8 * size - 1)) - bits, bits)


def errors_in_ulp(answers: Array, expected: Array, ulp_dtype: Any = None) -> Array:
    """Return the largest error for each of n arrays, `[n ...] -> [n]`, in ulp of the largest expected magnitude.

    All errors of an array are in ulp of the same magnitude. A small entry may be the difference of large numbers, and
    have their rounding errors; measured in its own ulp, these would be thousands. If the output was computed in a
    coarser dtype than it is stored in, `ulp_dtype` is that dtype, and defines an ulp. Source: Higham 2002, "Accuracy
    and Stability of Numerical Algorithms", sections 2.1 (ulp) and 3.1 (normwise error).
    """
    dtype = np.dtype(ulp_dtype or answers.dtype)
    magnitudes = np.abs(expected).reshape(len(expected), -1).max(axis=-1, initial=0)
    with np.errstate(all="ignore"):
        # scale numbers that are too large for the dtype, as if its exponents had no limit
        overflows = (magnitudes > float_info(dtype).max) & (magnitudes < np.inf)
        scales = np.where(overflows, 2.0 ** np.floor(np.log2(magnitudes)), 1.0)
        units = np.spacing((magnitudes / scales).astype(dtype)).astype(np.float64)
        return np.asarray(largest_errors(answers, expected) / scales.astype(np.float64) / units)


def row_sum_errors(weights: Array) -> Array:
    """Return the largest `|sum_j w_j - 1|` in each array, `[n ... s] -> [n]`, over rows that are not all zero."""
    sums = weights.sum(axis=-1)
    return np.asarray(np.where(sums != 0, np.abs(sums - 1), 0.0).reshape(len(sums), -1).max(axis=-1, initial=0.0))


def cosines(left: Array, right: Array) -> Array:
    """Return `<x, y> / (|x| |y|)` of each pair of flattened arrays, `[n ...] -> [n]`.

    The result is 1 for two arrays of zeros, 0 if only one is all zero, and NaN if a number is not finite.
    """
    with np.errstate(all="ignore"):  # norms are computed as in `numpy.linalg.norm`
        numbers = (flatten_in_memory_order(side) for side in (left, right))
        one, other = (np.asarray(np.sqrt(np.vecdot(side, side)), np.float64) for side in numbers)
        products = np.vecdot(*(side.reshape(len(side), -1) for side in (left, right)))
        angles = products.astype(np.float64) / (one * other)
        return np.where(one * other == 0, one == other, angles)


def kl(p: Array, q: Array) -> Array:
    """Return the KL divergence `sum_j p_j ln(p_j / q_j)` of each row, in nats; infinite if q is 0 where p is not.

    Source: Kullback and Leibler 1951, "On Information and Sufficiency".
    """
    with np.errstate(divide="ignore"):
        logs = np.log(np.where(p > 0, p, 1)) - np.log(np.where(p > 0, q, 1))
    return np.asarray(np.where(p > 0, p * logs, 0.0).sum(axis=-1))


def js(p: Array, q: Array) -> Array:
    """Return the Jensen-Shannon divergence `(kl(p, m) + kl(q, m)) / 2` of each row, where m = (p + q) / 2: 0 to ln 2.

    Source: Lin 1991, "Divergence Measures Based on the Shannon Entropy"; between heads: Clark et al. 2019, section 6.
    """
    middle = (p + q) / 2
    return (kl(p, middle) + kl(q, middle)) / 2


def total_variation(p: Array, q: Array) -> Array:
    """Return the total variation distance `sum_j |p_j - q_j| / 2` of each row: 0 to 1.

    Source: Jain and Wallace 2019, "Attention is not Explanation", section 3.
    """
    return np.asarray(np.abs(p - q).sum(axis=-1) / 2)


def mean_divergence(divergence: Callable[[Array, Array], Array], subject: Subject) -> float:
    """Return the mean divergence between the weights of the baseline row and of a variant, over all queries.

    `divergence` takes the weights of the baseline row first. A query is left out if it sees no key in one of the two.

    Raises:
        NotFormedError: rows of weights do not sum to 1, or the two variants differ in the shape of their weights.
    """
    baseline = weights(subject._replace(trace=subject.baseline))
    actual = shares(subject)
    require_formed(baseline.shape == actual.shape and bool(sum_to_one(baseline).all()))
    return mean(divergence(baseline, actual)[sees(baseline) & sees(actual)])


def head_divergence(weights: Array) -> float:
    """Return the mean Jensen-Shannon divergence over all pairs of heads: 0 if all are equal, NaN for a single head.

    Source: Clark et al. 2019, "What Does BERT Look At?", section 6.
    """
    rows = [js(one, other)[sees(one) & sees(other)] for one, other in itertools.combinations(weights, 2)]
    return mean(np.concatenate(rows)) if rows else float("nan")


metric, relative = partial(Metric, place=1), partial(Metric, place=3, relative=True)

METRICS = (
    metric(
        "max_error",
        lambda subject: largest_error(*get_both_answers(subject)),
        meaning="the largest difference from the exact answer",
    ),
    metric(
        "mean_error",
        lambda subject: mean_error(*get_answers_seen(subject)),
        meaning="the mean difference from the exact answer",
        source="PyTorch, test/inductor/test_flex_attention.py",
    ),
    metric(
        "rms_error",
        lambda subject: rms_error(*get_answers_seen(subject)),
        meaning="the root mean square of the difference from the exact answer",
        source='Shah et al. 2024, "FlashAttention-3", table 3',
    ),
    metric(
        "relative_rms",
        lambda subject: relative_rms(*get_answers_seen(subject)),
        meaning="rms_error divided by the root mean square of the exact answer",
        source="fla-org/flash-linear-attention, fla/utils",
    ),
    metric(
        "close",
        lambda subject: passes_assert_close(*get_answers_seen(subject), subject.settled.computed_in.name),
        meaning="whether the output passes torch.testing.assert_close",
        unit="1 = yes",
        source="torch.testing.assert_close",
    ),
    metric(
        "ulp",
        lambda subject: float(
            ulp_distances(*(end[None].astype(subject.settled.computed_in) for end in get_both_answers(subject)))[0]
        ),
        meaning="the largest distance from the exact answer, in units in the last place",
        unit="ulp",
        source='Goldberg 1991, "What Every Computer Scientist Should Know About Floating-Point Arithmetic"',
    ),
    metric(
        "row_sum_error",
        lambda subject: float(row_sum_errors(weights(subject)[None])[0]),
        meaning="the largest deviation of a row of weights from summing to 1",
    ),
    relative(
        "kl",
        partial(mean_divergence, kl),
        meaning="the KL divergence of the baseline row's weights from this row's",
        unit="nats, vs. the baseline row",
        source="Kullback and Leibler 1951",
    ),
    relative(
        "js",
        partial(mean_divergence, js),
        meaning="the Jensen-Shannon divergence between this row and the baseline row",
        unit="nats, vs. the baseline row",
        source="Lin 1991",
    ),
    relative(
        "total_variation",
        partial(mean_divergence, total_variation),
        meaning="the share of weight that would have to move to make both rows equal",
        unit="vs. the baseline row",
        source='Jain and Wallace 2019, "Attention is not Explanation", section 3',
    ),
    relative(
        "cosine_mean",
        lambda subject: cosines(*get_both_outputs(subject)).mean(),
        meaning="the mean cosine similarity of output rows",
        unit="vs. the baseline row",
        source='Zhang et al. 2025, "SageAttention", section 4.1',
    ),
    relative(
        "cosine_least",
        lambda subject: cosines(*get_both_outputs(subject)).min(),
        meaning="the smallest cosine similarity of output rows",
        unit="vs. the baseline row",
        source='Zhang et al. 2025, "SageAttention", section 4.1',
    ),
    partial(Metric, place=7)(
        "head_divergence",
        lambda subject: head_divergence(shares(subject)),
        meaning="the mean Jensen-Shannon divergence between two heads: 0 if all heads are equal",
        unit="nats",
        source="Clark et al. 2019, section 6",
    ),
)
