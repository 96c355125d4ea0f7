"""Sums of the reference are exact: each is the float nearest to the sum of fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from attn_exp.reference.oracle import sum_exactly


def test_each_sum_is_the_float_nearest_to_the_exact_sum() -> None:
    draw = np.random.default_rng(0).integers
    terms = np.ldexp(draw(-9, 9, (999, 5)), draw(60, size=(999, 5)))  # many are halfway between two floats
    assert sum_exactly(terms).tolist() == [float(sum(map(Fraction, row))) for row in terms.tolist()]
