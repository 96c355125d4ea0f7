"""Printed numbers: what they say and how exactly."""

from __future__ import annotations

import numpy as np
import pytest

from attn_exp.experiment.documents.printed import read, rewritten

TEXTS = [
    ("[[ 8 13]\n [ 6  7]]", None, [8, 13, 6, 7], [0.5] * 4),
    ("[0.149 0.306 0.385 0.16 ]", None, [0.149, 0.306, 0.385, 0.16], [0.0005] * 4),
    ("[1. 0.5]", None, [1, 0.5], [0.05] * 2),
    ("[[1.2884, 1.064 , 1.452 ]]", 8, [1.2884, 1.064, 1.452], [0.5e-8] * 3),
    ("[1.24326146e-13 9.98281489e-01]", None, [1.24326146e-13, 9.98281489e-01], [0.5e-21, 0.5e-9]),
    ("[3.4e-7 .06204187 0]", None, [3.4e-7, 0.06204187, 0], [0.5e-8] * 3),
    ("array([[-0.27]]), array([[1.5E+02]])", None, [-0.27, 150], [0.005, 5]),
    ("\u22121.5", None, [-1.5], [0.05]),
    ("0.33000000000000007", 8, [0.33000000000000007], [0.5e-8]),
]


@pytest.mark.parametrize(("text", "digits", "values", "half_units"), TEXTS)
def test_numbers_and_half_their_last_digit(
    text: str, digits: int | None, values: list[float], half_units: list[float]
) -> None:
    found, halves = read(text, digits)
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(halves, half_units)


def test_other_numbers_in_the_same_brackets() -> None:
    assert rewritten("[[1.25, 3.  ], [4e-3]]", np.array([2 / 3, -1, 0.0123])) == "[[0.67, -1.00  ], [1e-02]]"
    assert rewritten("[1.5 2]", np.array([2 / 3, -1]), 3) == "[0.667 -1.000]"
