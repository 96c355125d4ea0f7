"""Sums that are rounded once, many at a time: `math.fsum` of each."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attn_exp.reference.stack import exact_sums

DRAWN = np.random.default_rng(20_261)


def of_one_kind(kind: str, count: int) -> np.ndarray:
    """Return 3000 rows of numbers that are hard to sum in one way."""
    numbers = DRAWN.standard_normal((3000, count))
    if kind == "of many sizes":
        return numbers * 10.0 ** DRAWN.integers(-30, 30, numbers.shape)
    if kind == "that cancel":
        rest = numbers[:, : count // 2]
        return np.concatenate([rest, -rest * (1 + 1e-15), DRAWN.standard_normal((3000, 1)) * 1e-17], axis=1)
    if kind == "between two floats":  # 1, half a unit in its last place, and what decides, or nothing
        return np.stack([np.full(3000, 1.0), np.full(3000, 2.0**-53), DRAWN.integers(-1, 2, 3000) * 2.0**-110], axis=1)
    if kind == "near the smallest":
        return numbers * 5e-323
    return numbers


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9, 40])
@pytest.mark.parametrize("kind", ["plain", "of many sizes", "that cancel", "between two floats", "near the smallest"])
def test_every_sum_is_that_of_fsum(kind: str, count: int) -> None:
    terms = of_one_kind(kind, count)
    expected = [math.fsum(line) for line in terms.tolist()]
    np.testing.assert_array_equal(exact_sums(terms), expected)


def test_sums_of_zeros_and_of_infinities_are_those_of_fsum() -> None:
    terms = np.array([[-0.0, -0.0], [0.0, 0.0], [np.inf, 1.0], [1e308, -1e308]])
    sums = exact_sums(terms)
    np.testing.assert_array_equal(sums, [0.0, 0.0, np.inf, 0.0])
    assert not np.signbit(sums[0])
    with pytest.raises(OverflowError):
        exact_sums(np.array([[1e308, 1e308]]))
