"""How far an answer is from the exact one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.metric import Metric, ends, weights
from attn_exp.experiment.number_types import limits


def largest_error(answer: Array, expected: Array) -> float:
    """Return `max |answer - expected|`, in the units of the output.

    NaN in one alone counts as infinite; NaN in both is agreement.
    """
    if expected.size == 0:
        return 0.0
    both = np.isnan(answer) & np.isnan(expected)
    difference = np.where(both, 0.0, np.abs(answer.astype(np.float64) - expected))
    return float(np.where(np.isnan(difference), np.inf, difference).max())


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


def ulp_distance(answer: Array, expected: Array) -> int:
    """Return the most floats of this type that lie between two numbers at the same place, in units in the last place.

    The bits of floats, read as whole numbers with the negative ones turned, are in the order of the floats: the
    distance is a difference of whole numbers. Source: Goldberg 1991, "What Every Computer Scientist Should Know About
    Floating-Point Arithmetic"; `numpy.testing.assert_array_max_ulp`.
    """
    if answer.size == 0:
        return 0
    places = [ordered(array.astype(answer.dtype)) for array in (answer, expected)]
    high, low = np.maximum(*places), np.minimum(*places)
    return int((high.astype(object) - low.astype(object)).max())


def ordered(numbers: Array) -> Array:
    """Return the place of each float in the order of all floats of its type."""
    size = numbers.dtype.itemsize
    bits = np.ascontiguousarray(numbers).view(f"i{size}").astype(np.int64)
    return np.where(bits < 0, -(2 ** (8 * size - 1)) - bits, bits)


def error_in_ulp(answer: Array, expected: Array, kind: Any = None) -> float:
    """Return the largest error over the spacing of floats at the largest expected magnitude, in ulp.

    Measured against one magnitude for the whole array: a small entry that is the difference of large ones carries
    their rounding, and would otherwise count as thousands of units in the last place. `kind` is the type whose spacing
    it is, where the answer's own has more digits than it was computed with. Source: Higham 2002, "Accuracy and
    Stability of Numerical Algorithms", sections 2.1 (ulp) and 3.1 (normwise error).
    """
    if expected.size == 0:
        return 0.0
    own, magnitude = np.dtype(answer.dtype if kind is None else kind), np.abs(expected).max()
    beyond = bool(limits(own).max < magnitude < np.inf)  # the unit that such a number would have, if the type went on
    scale = 2.0 ** np.floor(np.log2(magnitude)) if beyond else 1.0
    return largest_error(answer, expected) / float(scale) / float(np.spacing((magnitude / scale).astype(own)))


def row_sum_error(weights: Array) -> float:
    """Return the largest `|sum_j w_j - 1|` over rows that attend to anything."""
    sums = weights.sum(axis=-1)
    return float(np.abs(sums - 1)[sums != 0].max(initial=0.0))


metric = partial(Metric, place=1)

METRICS = (
    metric(
        "max_error",
        lambda subject: largest_error(*ends(subject)),
        meaning="the largest difference from the exact answer",
    ),
    metric(
        "mean_error",
        lambda subject: mean_error(*ends(subject)),
        meaning="the mean difference from the exact answer",
        source="PyTorch, test/inductor/test_flex_attention.py",
    ),
    metric(
        "rms_error",
        lambda subject: rms_error(*ends(subject)),
        meaning="the root of the mean squared difference from the exact answer",
        source='Shah et al. 2024, "FlashAttention-3", table 3',
    ),
    metric(
        "relative_rms",
        lambda subject: relative_rms(*ends(subject)),
        meaning="rms_error over the root mean square of the exact answer",
        source="fla-org/flash-linear-attention, fla/utils",
    ),
    metric(
        "close",
        lambda subject: close(*ends(subject), subject.settled.computed_in.name),
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
        lambda subject: row_sum_error(weights(subject)),
        meaning="how far a row of weights is from summing to 1",
    ),
)
