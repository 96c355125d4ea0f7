"""Mistakes that only code makes are named, under a condition too; a name is said only where fresh answers prove it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp import mistakes
from attn_exp.diagnosis.asking.offer import offered
from attn_exp.diagnosis.asking.questions import core_cases
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.recipes.fitted import one_for_all_sizes
from tests.zoo.case import Case
from tests.zoo.wrong_code import CODE, logits, raw, soft


@pytest.mark.parametrize("case", CODE, ids=lambda case: case.name)
def test_each_is_named_alone(case: Case) -> None:
    verdict = attn_exp.check(case.function, *case.settings)
    is_remark = case.mistake in ("one_maximum", "zero_scores_hidden")  # no logits of people are so far apart, or 0
    assert (verdict.passed, verdict.mistakes, verdict.where) == (is_remark, (case.mistake,), ""), verdict


def test_each_of_the_catalogue_has_a_function() -> None:
    of_code = {name for name in mistakes.names() if mistakes.mistake(name).of_code}
    elsewhere = {"dropout_on", "batch_mixed", "log_softmax"}  # beside the other functions of the zoo
    elsewhere |= {"tokens_not_transposed"}  # of images, in test_tokens_and_diagonals.py
    assert of_code - elsewhere == {case.mistake for case in CODE} - {"mask_stale"}


@pytest.mark.full_search
@pytest.mark.long
def test_zeros_are_hidden_beside_a_mask_that_is_turned() -> None:
    def turned(q: Any, k: Any, v: Any) -> Any:
        scores = np.triu(logits(q, k))
        return soft(np.where(scores == 0, -9e15, scores)) @ v

    assert attn_exp.check(turned, "mask=causal").mistakes == ("causal_flipped", "zero_scores_hidden")


def test_the_number_that_was_read_off_is_said() -> None:
    def cooled(q: Any, k: Any, v: Any) -> Any:
        return soft(0.9 * logits(q, k)) @ v

    assert "They are 0.9 times what they should be." in attn_exp.check(cooled, quick=True).computes


def test_a_factor_of_zero_is_no_number_that_scores_are_divided_by() -> None:
    case = next(core_cases(Request(), offered(lambda q, k, v: v, "values"), "bhtd", True))
    assert not list(one_for_all_sizes(case, 0.0))
    assert [one.names for one in one_for_all_sizes(case, 2.0)] == [("scale_fixed",)]


# Under a condition


def turned_where_square(q: Any, k: Any, v: Any) -> Any:
    weights = soft(logits(q, k))
    return (weights.swapaxes(-1, -2) if q.shape[-2] == k.shape[-2] else weights) @ v


def newest_key_lost(q: Any, k: Any, v: Any) -> Any:
    kept = slice(None, -1 if k.shape[-2] > q.shape[-2] else None)
    return soft(logits(q, k[..., kept, :])) @ v[..., kept, :]


def unscaled_in_a_batch(q: Any, k: Any, v: Any) -> Any:
    return soft(raw(q, k) if len(q) > 1 else logits(q, k)) @ v


def unscaled_if_causal(q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
    if not is_causal:
        return soft(logits(q, k)) @ v
    return soft(np.where(np.tri(q.shape[-2], k.shape[-2], dtype=bool), raw(q, k), -np.inf)) @ v


def mask_lost_beside_causal(q: Any, k: Any, v: Any, mask: Any = None, is_causal: bool = False) -> Any:
    seen = np.tri(q.shape[-2], k.shape[-2], dtype=bool) if is_causal else True if mask is None else mask
    return soft(np.where(seen, logits(q, k), -np.inf)) @ v


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "name", "where"),
    [
        (turned_where_square, "weights_transposed", "(t = s)"),
        (newest_key_lost, "tail_dropped", "(s > t)"),
        (unscaled_in_a_batch, "no_scale", "the batch has several entries"),
        (unscaled_if_causal, "no_scale", "causal is asked for"),
        (mask_lost_beside_causal, "mask_ignored", "a mask and causal together"),
    ],
)
def test_a_mistake_under_a_condition_is_named_with_it(function: Any, name: str, where: str) -> None:
    verdict = attn_exp.check(function)
    assert verdict.mistakes == (name,) and where in verdict.where, verdict
    assert f"but where {verdict.where}; there attention with {name}" in str(verdict)


# No wrong name


def without_an_axis(q: Any, k: Any, v: Any) -> Any:
    return (soft(logits(q, k)) @ v)[0]


def rolled(q: Any, k: Any, v: Any) -> Any:
    return np.roll(soft(logits(q, k)), 1, axis=-1) @ v


def clipped(q: Any, k: Any, v: Any) -> Any:
    return soft(np.maximum(logits(q, k), 0)) @ v


@pytest.mark.long
@pytest.mark.parametrize("function", [without_an_axis, rolled, clipped])
def test_what_no_mistake_explains_gets_no_name(function: Any) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert not verdict.passed and not verdict.mistakes, verdict


# Asked enough


def test_a_head_of_other_numbers_is_asked() -> None:
    def for_heads_of_eight(q: Any, k: Any, v: Any) -> Any:
        return soft(raw(q, k) * 8**-0.5) @ v

    verdict = attn_exp.check(for_heads_of_eight, quick=True)
    assert not verdict.passed and verdict.mistakes == ("scale_fixed",), verdict


def test_an_object_is_asked_in_the_size_that_it_may_be_made_for() -> None:
    class Made:
        def __init__(self, size: int) -> None:
            self.scale = size**-0.5

        def __call__(self, q: Any, k: Any, v: Any) -> Any:
            return soft(raw(q, k) * self.scale) @ v

    assert attn_exp.check(Made(8), quick=True).passed
