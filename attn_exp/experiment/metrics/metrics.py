"""Numbers that say how right an answer is and what its weights look like."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def largest_error(answer: Array, expected: Array) -> float:
    """Return `max |answer - expected|`, in the units of the output.

    NaN in one alone counts as infinite; NaN in both is agreement.
    """
    if expected.size == 0:
        return 0.0
    both = np.isnan(answer) & np.isnan(expected)
    difference = np.where(both, 0.0, np.abs(answer.astype(np.float64) - expected))
    return float(np.where(np.isnan(difference), np.inf, difference).max())


def ulp_distance(answer: Array, expected: Array) -> int:
    """Return the most floats of this type that lie between two numbers at the same place, in units in the last place.

    The bits of floats, read as whole numbers with the negative ones turned, are in the order of the floats: the
    distance is a difference of whole numbers. Source: Goldberg 1991, "What Every Computer Scientist Should Know About
    Floating-Point Arithmetic"; `numpy.testing.assert_array_max_ulp`.
    """
    if answer.size == 0:
        return 0
    places = [ordered(each.astype(answer.dtype)) for each in (answer, expected)]
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
    magnitude = np.abs(expected).max().astype(answer.dtype if kind is None else kind)
    return largest_error(answer, expected) / float(np.spacing(magnitude))


def cosine(left: Array, right: Array) -> float:
    """Return `<x, y> / (|x| |y|)` of two flattened arrays; 1 for two zero arrays, 0 if only one is zero."""
    lengths = float(np.linalg.norm(left)) * float(np.linalg.norm(right))
    if lengths == 0:
        return float(not np.any(left) and not np.any(right))
    return float(np.vdot(left, right)) / lengths


def entropy(weights: Array) -> Array:
    """Return `-sum_j w_j ln w_j` of each row `[... t s] -> [... t]`, in nats, with `0 ln 0 = 0`.

    Source: Shannon 1948; of attention rows, Clark et al. 2019, "What Does BERT Look At?", section 3.3.
    """
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    return np.asarray(-(weights * logs).sum(axis=-1))


def effective_keys(weights: Array) -> Array:
    """Return `exp(entropy)` of each row: over how many keys, equally weighted, it would spread as widely."""
    return np.exp(entropy(weights))


def largest_weight(weights: Array) -> Array:
    """Return `max_j w_j` of each row; the mean over rows is the confidence of Voita et al. 2019, section 4."""
    return np.asarray(weights.max(axis=-1, initial=0.0))


def row_sum_error(weights: Array) -> float:
    """Return the largest `|sum_j w_j - 1|` over rows that attend to anything."""
    sums = weights.sum(axis=-1)
    return float(np.abs(sums - 1)[sums != 0].max(initial=0.0))


def flops(rows: int, keys: int, heads: int, size: int, value_size: int) -> int:
    """Return `2 h t s (d + e)`: a multiplication and an addition for each term of `q k^T` and of `weights v`.

    Scaling, softmax and projections are not counted. Source: FlashAttention, `benchmarks/benchmark_flash_attention.py`.
    """
    return 2 * heads * rows * keys * (size + value_size)
