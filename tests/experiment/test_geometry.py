"""`check=geometry`: what a run's sizes hide, as known from the sizes alone."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp


def records(*words: str) -> dict[str, Any]:
    """Return the records of the one variant by the mistake's name."""
    (finding,) = attn_exp.run("report=none", "check=geometry", *words).comparison.checks
    assert finding.sentence.endswith(".")
    return {record.mistake: record for record in finding.records}


def sized(tokens: int, d_model: int, head: int) -> tuple[str, ...]:
    """Return the words of a run of these sizes."""
    start = ("variant=[multi_head]", "embeddings=random", "bias=true", f"head={head}")
    return (*start, f"embeddings.tokens={tokens}", f"embeddings.d_model={d_model}")


GOOD = sized(5, 24, 3)
"""Sizes of which no two are alike: t = 5, H = 3, d = 8, d_model = 24."""


def test_one_head_hides_what_concerns_heads() -> None:
    found = records("variant=[matrix]")
    hidden = ("scale_by_sqrt_d_model", "heads_reversed", "heads_averaged", "single_head")
    assert {found[name].shows for name in hidden} == {"no"}
    assert found["heads_merged_wrong"].shows == "yes"  # tokens as columns, put together by a view: of one head too
    assert "scale_by_sqrt_heads" in found["no_scale"].like.split(", ")  # 1 / sqrt(1) is no scale


def test_good_sizes_show_them() -> None:
    found = records(*GOOD)
    for name in (
        "scale_by_sqrt_d_model",
        "heads_reversed",
        "single_head",
        "scale_by_sqrt_heads",
        "no_scale",
        "no_bias",
    ):
        assert found[name].shows == "yes", found[name]


def test_d_model_of_d_squared_makes_1_over_d_look_like_1_over_its_root() -> None:
    """H = d = 4, d_model = 16: 1 / d = 1 / sqrt(d_model)."""
    found = records(
        "variant=[multi_head]", "embeddings=random", "embeddings.tokens=5", "embeddings.d_model=16", "head=4"
    )
    assert found["scale_by_d"].shows == "alike"
    assert "scale_by_sqrt_d_model" in found["scale_by_d"].like.split(", ")
    assert found["scale_by_sqrt_heads"].shows == "no"  # 1 / sqrt(H) is then the right scale


def test_as_many_keys_as_numbers_in_a_head_hide_the_wrong_root() -> None:
    found = records(
        "variant=[multi_head]", "embeddings=random", "embeddings.tokens=8", "embeddings.d_model=24", "head=3"
    )
    assert found["scale_by_sqrt_keys"].shows == "no"


def test_one_token_hides_the_softmax() -> None:
    found = records(
        "variant=[multi_head]", "embeddings=random", "embeddings.tokens=1", "embeddings.d_model=24", "head=3"
    )
    for name in ("no_scale", "softmax_over_queries", "weights_transposed", "queries_keys_swapped"):
        assert found[name].shows == "no", found[name]


def test_a_matrix_of_a_document_that_is_the_identity_hides_that_it_is_left_out() -> None:
    """The document has no W_o: the identity stands for it, which nobody misses."""
    record = records("embeddings=the_cat_sat", "projections=the_cat_sat", "head=2", "variant=[multi_head]")
    assert record["no_output_projection"].shows == "no"


@pytest.mark.long
def test_a_mistake_in_what_is_not_asked_for_is_said_so() -> None:
    assert records(*GOOD)["causal_next"].shows == "not asked for"
    assert records(*GOOD, "mask=causal")["causal_next"].shows == "yes"
    lengths = ("mask=[causal,padding]", "mask.padding.lengths=4")
    assert records(*GOOD, *lengths)["padding_one_short"].like == "tail_dropped"  # three of five keys, a block of three
