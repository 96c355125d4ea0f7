"""A difference is explained by the settings that make it, and by no other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attn_exp.config.schema import Variant
from attn_exp.experiment.compare import compare
from attn_exp.experiment.row import Comparison
from attn_exp.report import sentences
from attn_exp.report.escapes import brief
from tests.compose import comparison, config
from tests.experiment.test_ladder import RANDOM, between


def said(found: Comparison) -> str:
    return sentences.describe_groups(found.rows, found.steps, found.config.against)


def test_the_summary_says_what_each_setting_does_in_one_line() -> None:
    found = comparison("embeddings=she_likes_coffee", "projections=normal", "seed=0")
    heads, mixed = [step for step in found.steps if step.variant == "multi_head" and step.setting != "form"]
    lead = said(found)
    assert lead.startswith("looped, matrix and scaled give the same result (group A). ")
    far = brief(found.rows[3].max_diff)
    assert f"multi_head differs from looped by up to {far} in the output: 2 heads change the output" in lead
    assert f"by up to {brief(heads.moved)}" in lead
    assert lead.endswith(f"then W_o by up to {brief(mixed.moved)}.")


CASES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"scale": False}, ", and leaving out the scaling alone causes this."),
    ({}, {"head": 3}, ", and 3 heads alone cause this."),
    ({"head": 3}, {"head": 1}, ", and 1 head alone causes this."),
    ({}, {"mask": {"causal": {}}}, ", and mask=causal alone causes this."),
    ({"mask": {"causal": {}}}, {}, ", and leaving out the mask alone causes this."),
    ({}, {"output_projection": True, "form": "looped"}, ", and W_o alone causes this."),
    ({}, {"mistake": ("no_scale",)}, ", and mistake=no_scale alone causes this."),
]


@pytest.mark.parametrize(("one", "other", "ending"), CASES, ids=str)
def test_one_setting_alone_is_the_cause(one: dict[str, Any], other: dict[str, Any], ending: str) -> None:
    assert said(between({"head": 1} | one, {"head": 1} | other)).endswith(ending)


def test_a_setting_that_moves_nothing_is_not_named() -> None:
    """Of one key the weight is 1 whatever the scale: W_o alone moves the output, in any order."""
    words = ("embeddings=random", "embeddings.tokens=1", "embeddings.d_model=4", "head=1")
    text = said(between({"scale": False}, {"scale": True, "output_projection": True}, *words))
    assert "W_o changes the output by up to" in text and "scal" not in text


def test_what_moves_something_in_another_order_alone_is_named_with_its_range() -> None:
    """Key/value heads are shared by one head already, so that they move nothing before there are more heads."""
    rows = between({"head": 3, "kv_head": 1}, {"head": 1, "output_projection": True})
    assert "1 key/value head by up to 0 (" in said(rows) and " in another order)" in said(rows)


def test_rows_of_one_function_that_come_to_it_by_other_settings_are_told_apart() -> None:
    """No scaling is scale=1: two rows of one function, each with a cause of its own."""
    rows: dict[str, dict[str, Any]] = {"a": {}, "b": {"scale": False}, "c": {"scale": 1.0, "form": "looped"}}
    variants = {name: Variant(**{"form": "matrix", "head": 1, **pins}) for name, pins in rows.items()}
    text = said(compare(replace(config(*RANDOM), variant=variants)))
    assert text.startswith("b and c give the same result (group B). ")
    assert text.endswith(": in b leaving out the scaling alone causes this; in c scale=1.0 alone causes this.")


def test_settings_that_undo_each_other_change_nothing_together() -> None:
    found = between({}, {"scale": 0.5, "score": {"softcap": {"cap": 1e9}}}, "head=1", "embeddings=she_likes_coffee")
    assert sentences.explain_shared_letters(found) == [
        "other has scale=0.5 and score=softcap(cap=1000000000.0), which together change nothing here."
    ]


def test_the_row_compared_with_is_the_one_that_is_named() -> None:
    text = said(comparison("against=multi_head", "embeddings=she_likes_coffee"))
    assert "looped, matrix and scaled differ from multi_head by up to" in text
    assert "1 head changes the output by up to" in text and "then leaving out W_o by up to" in text


def test_a_run_too_large_names_what_differs_and_no_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attn_exp.experiment.ladder.LARGE", 1)
    assert said(comparison()).endswith(": form=matrix and 2 heads and W_o; the run is too large to tell them apart.")
