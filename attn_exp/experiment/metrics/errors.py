"""How far an answer is from the exact one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.metric import Metric, ends, ends_seen, weights
from attn_exp.experiment.number_types import limits


def largest_errors(answers: Array, expected: Array) -> Array:
    """Return `max |answer - expected|` of each of many arrays `[n ...] -> [n]`, in the units of the output.

    NaN in one alone counts as infinite; NaN in both is agreement.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        differences = np.abs(answers.astype(np.float64, copy=False) - expected)
    if (strange := np.isnan(differences)).any():
        both = np.isnan(answers) & np.isnan(expected)
        differences = np.where(both, 0.0, np.where(strange, np.inf, differences))
    largest = differences.reshape(len(differences), -1).max(axis=-1, initial=0.0)
    return np.asarray(largest, np.float64)


def largest_error(answer: Array, expected: Array) -> float:
    """Return `max |answer - expected|` of one array, as `largest_errors` of many."""
    return float(largest_errors(answer[None], expected[None])[0])


def mean_error(answer: Array, expected: Array) -> float:
    """Return `mean |x - ref|`. Source: PyTorch, `test/inductor/test_flex_attention.py`, compares means."""
    return float(np.abs(answer - expected).mean())


def rms_error(answer: Array, expected: Array) -> float:
    """Return `sqrt(mean (x - ref)^2)`. Source: Shah et al. 2024, "FlashAttention-3", table 3."""
    return float(np.sqrt(np.mean((answer - expected) ** 2)))


def relative_rms(answer: Array, expected: Array) -> float:
    """Return `rms(x - ref) / (rms(ref) + 1e-8)`. Source: fla-org/flash-linear-attention, `fla/utils`."""
    return rms_error(answer, expected) / (float(np.sqrt(np.mean(np.asarray(expected) ** 2))) + 1e-8)


CLOSE = {"float16": (1e-3, 1e-3), "bfloat16": (1.6e-2, 1e-3), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}
"""Relative and absolute tolerances of `torch.testing.assert_close` by type."""


def close(answer: Array, expected: Array, dtype: str = "float64") -> bool:
    """Say whether `|x - ref| <= atol + rtol |ref|` everywhere. Source: `torch.testing.assert_close`, its defaults."""
    relative, absolute = CLOSE[dtype]
    return bool((np.abs(answer - expected) <= absolute + relative * np.abs(expected)).all())


def ulp_distances(answers: Array, expected: Array) -> Array:
    """Return the most floats of their type that lie between two numbers at the same place, `[n ...] -> [n]`.

    It is the distance of each array in units in the last place. The bits of floats, read as whole numbers with the
    negative ones turned, are in the order of the floats: the distance is a difference of whole numbers. Source:
    Goldberg 1991, "What Every Computer Scientist Should Know About Floating-Point Arithmetic";
    `numpy.testing.assert_array_max_ulp`.
    """
    places = [ordered(array.astype(answers.dtype)) for array in (answers, expected)]
    high, low = np.maximum(*places), np.minimum(*places)
    units = high.view(np.uint64) - low.view(np.uint64)  # the difference of any two fits without a sign
    return np.asarray(units.reshape(len(units), -1).max(axis=-1, initial=0))


def ulp_distance(answer: Array, expected: Array) -> int:
    """Return the distance of one array from another in units in the last place, as `ulp_distances` of many."""
    return int(ulp_distances(answer[None], expected[None])[0])


def ordered(numbers: Array) -> Array:
    """Return the place of each float in the order of all floats of its type."""
    size = numbers.dtype.itemsize
    bits = np.ascontiguousarray(numbers).view(f"i{size}").astype(np.int64)
    return np.where(bits < 0, -(2 ** (8 * size - 1)) - bits, bits)


def errors_in_ulp(answers: Array, expected: Array, kind: Any = None) -> Array:
    """Return the largest error of each of many arrays `[n ...] -> [n]`, in ulp of its largest expected magnitude.

    Measured against one magnitude for the whole array: a small entry that is the difference of large ones carries
    their rounding, and would otherwise count as thousands of units in the last place. `kind` is the type whose spacing
    it is, where the answer's own has more digits than it was computed with. Source: Higham 2002, "Accuracy and
    Stability of Numerical Algorithms", sections 2.1 (ulp) and 3.1 (normwise error).
    """
    own = np.dtype(answers.dtype if kind is None else kind)
    magnitudes = np.abs(expected).reshape(len(expected), -1).max(axis=-1, initial=0)
    with np.errstate(all="ignore"):
        beyond = (magnitudes > limits(own).max) & (magnitudes < np.inf)  # what their unit would be, if the type went on
        scales = np.where(beyond, 2.0 ** np.floor(np.log2(magnitudes)), 1.0)
        units = np.spacing((magnitudes / scales).astype(own)).astype(np.float64)
        return np.asarray(largest_errors(answers, expected) / scales.astype(np.float64) / units)


def row_sum_errors(weights: Array) -> Array:
    """Return the largest `|sum_j w_j - 1|` over the rows of each array `[n ... s] -> [n]` that attend to anything."""
    sums = weights.sum(axis=-1)
    return np.asarray(np.where(sums != 0, np.abs(sums - 1), 0.0).reshape(len(sums), -1).max(axis=-1, initial=0.0))


metric = partial(Metric, place=1)

METRICS = (
    metric(
        "max_error",
        lambda subject: largest_error(*ends(subject)),
        meaning="the largest difference from the exact answer",
    ),
    metric(
        "mean_error",
        lambda subject: mean_error(*ends_seen(subject)),
        meaning="the mean difference from the exact answer",
        source="PyTorch, test/inductor/test_flex_attention.py",
    ),
    metric(
        "rms_error",
        lambda subject: rms_error(*ends_seen(subject)),
        meaning="the root of the mean squared difference from the exact answer",
        source='Shah et al. 2024, "FlashAttention-3", table 3',
    ),
    metric(
        "relative_rms",
        lambda subject: relative_rms(*ends_seen(subject)),
        meaning="rms_error over the root mean square of the exact answer",
        source="fla-org/flash-linear-attention, fla/utils",
    ),
    metric(
        "close",
        lambda subject: close(*ends_seen(subject), subject.settled.computed_in.name),
        meaning="whether PyTorch would call it close",
        unit="1 = yes",
        source="torch.testing.assert_close",
    ),
    metric(
        "ulp",
        lambda subject: ulp_distance(ends(subject)[0].astype(subject.settled.computed_in), ends(subject)[1]),
        meaning="the most floats that lie between a number and the exact one",
        unit="ulp",
        source='Goldberg 1991, "What Every Computer Scientist Should Know About Floating-Point Arithmetic"',
    ),
    metric(
        "row_sum_error",
        lambda subject: float(row_sum_errors(weights(subject)[None])[0]),
        meaning="how far a row of weights is from summing to 1",
    ),
)
