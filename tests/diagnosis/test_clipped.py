"""Scores that are clipped far above usual ones are a remark that says the number; a clip of usual ones is none."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.diagnosis.asking.case import expected
from attn_exp.diagnosis.asking.offer import Offer
from attn_exp.diagnosis.asking.questions import layer_cases
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.explaining.clipped import number_of
from tests.zoo.wrong_code import raw, soft


def clipped_logits(q: Any, k: Any, v: Any) -> Any:
    return soft(np.clip(raw(q, k) / math.sqrt(q.shape[-1]), -60, 60)) @ v


def clipped_at_the_top(q: Any, k: Any, v: Any) -> Any:
    return soft(np.minimum(raw(q, k) / math.sqrt(q.shape[-1]), 88.5)) @ v


def clipped_before_the_scale(q: Any, k: Any, v: Any) -> Any:
    return soft(np.clip(raw(q, k), -750, 750) / math.sqrt(q.shape[-1])) @ v


@pytest.mark.parametrize(
    ("function", "number"), [(clipped_logits, "60"), (clipped_at_the_top, "88.5"), (clipped_before_the_scale, "750")]
)
def test_a_clip_of_large_scores_is_a_remark_with_its_number(function: Any, number: str) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert verdict.passed, verdict
    assert f"scores are clipped at {number}\n" in str(verdict)


def clipped_always(q: Any, k: Any, v: Any) -> Any:
    return soft(np.clip(raw(q, k) / math.sqrt(q.shape[-1]), -2, 2)) @ v


def other_where_large(q: Any, k: Any, v: Any) -> Any:
    logits = raw(q, k) / math.sqrt(q.shape[-1])
    return soft(np.where(np.abs(logits) > 60, -logits, logits)) @ v


@pytest.mark.long
@pytest.mark.parametrize("function", [clipped_always, other_where_large])
def test_what_no_clip_of_large_scores_explains_is_wrong(function: Any) -> None:
    assert not attn_exp.check(function, quick=True).passed


@pytest.mark.parametrize("large", [np.nan, 1.0])
def test_what_overflows_is_not_tried_as_clipped_at_each_of_a_hundred_thousand_numbers(large: float) -> None:
    """A layer without the largest logit taken away was asked for a minute, logits of 1e5 being between 32 and 1e5."""
    case = next(
        iter(
            layer_cases(
                Request(head=2),
                Offer(False, {role: role for role in ("x", "W_q", "W_k", "W_v", "W_o")}, (), {}),
                True,
                None,
            )
        )
    )
    assert case.given.x is not None
    case = replace(case, given=replace(case.given, x=1e4 * case.given.x))

    def tried(number: float) -> Any:
        raise AssertionError(f"tried {number}")

    assert number_of(case, large * expected(case)["output"], tried, "logits") is None
