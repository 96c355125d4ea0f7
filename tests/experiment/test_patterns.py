"""Patterns of heads, each held to arithmetic by hand, and the overview that names the strongest."""

from __future__ import annotations

import numpy as np
import pytest

from attn_exp.experiment.metrics import targets
from attn_exp.experiment.row import Run
from attn_exp.report.documents import documents
from tests.compose import comparison

TOKENS = ("a", "b", ".", "a", "b")
ITSELF = np.eye(5)
BEFORE = np.eye(5)[[0, 0, 1, 2, 3]]
FIRST = np.eye(5)[[0] * 5]
DOT = np.eye(5)[[2] * 5]
AFTER_THE_SAME = np.eye(5)[[0, 0, 0, 1, 2]]  # the second a looks at the first b, the second b at the dot
EVEN = np.full((5, 5), 0.2)
HEADS = np.stack([BEFORE, FIRST, ITSELF, DOT, AFTER_THE_SAME, EVEN])


def test_each_pattern_is_whole_in_the_head_that_does_it() -> None:
    numbers = targets.measure_patterns(HEADS, TOKENS)
    for head, name in enumerate(targets.PATTERNS):
        assert numbers[name][head] == pytest.approx(1.0)


def test_patterns_by_hand() -> None:
    numbers = targets.measure_patterns(HEADS, TOKENS)
    np.testing.assert_allclose(numbers["previous"], [1, 1 / 4, 0, 1 / 4, 1 / 4, 1 / 5])
    np.testing.assert_allclose(numbers["self"], [1 / 5, 1 / 5, 1, 1 / 5, 1 / 5, 1 / 5])
    np.testing.assert_allclose(numbers["delimiter"], [1 / 5, 0, 1 / 5, 1, 1 / 5, 1 / 5])
    np.testing.assert_allclose(numbers["induction"], [0, 0, 0, 1 / 2, 1, 1 / 5])
    np.testing.assert_allclose(numbers["broad"], [np.nan] * 5 + [1])


def test_what_the_tokens_have_no_place_for_is_no_number() -> None:
    once = targets.measure_patterns(HEADS, ("a", "b", "c", "d", "e"))
    assert np.isnan([once["delimiter"], once["induction"]]).all()
    assert np.isnan(targets.measure_patterns(HEADS[:, :2], TOKENS)["induction"]).all()
    other = targets.measure_patterns(HEADS, TOKENS, is_cross_attention=True)
    assert all(np.isnan(other[name]).all() for name in ("previous", "self", "induction"))
    assert other["first"][1] == 1
    numbers = targets.measure_patterns(HEADS[:, :1, :1], ("a",))
    assert np.isnan(numbers["previous"]).all()
    assert np.isnan(numbers["broad"]).all()
    assert targets.find_strongest(numbers, 0)[0] == "first"


def test_a_check_says_what_each_head_does() -> None:
    found = comparison("check=heads", "head=2", "variant=[matrix,multi_head]")
    records = found.checks[0].records
    assert [(record.variant, record.head) for record in records] == [
        ("matrix", 1),
        ("multi_head", 1),
        ("multi_head", 2),
    ]
    weights = found.traces["multi_head"].weights
    assert weights is not None
    assert records[2].first == pytest.approx(weights[1, :, 0].mean())
    assert records[2].self_ == pytest.approx(np.trace(weights[1]) / len(weights[1]))


def test_a_check_that_finds_nothing_to_look_at_says_so_and_has_no_table() -> None:
    """Such as heads of a form that never has their weights: a page without lines fell."""
    found = comparison("check=heads", "variant=[linear]", "report.figures=false", "report.pages=true")
    assert found.checks[0].records == ()
    made = documents(Run(found, (), {}))
    for name in ("report.html", "report.md"):
        told = made[name].decode().partition("Check: heads")[2]
        assert "no variant computes the weights of its heads" in told
        assert "induction" not in told
