"""Filler anywhere: named by its tokens or key by key, and the last query beside the last key that is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_exp.experiment.row import Comparison
from attn_exp.rules.masks.mask import Holes
from tests.compose import comparison
from tests.refusal import refusal

TEXT = ("embeddings=words", "embeddings.text=[CLS] she [PAD] likes tea [PAD] [PAD]", "mask=padding")
KEPT = [0, 1, 3, 4]
FORMS = "variant=[looped,matrix,scaled,multi_head,multi_query,blockwise]"


def soft(logits: Any) -> Any:
    """Share out 1 among each row, by the definition."""
    powers = np.exp(logits)
    return powers / powers.sum(axis=-1, keepdims=True)


def without_filler(found: Comparison) -> Any:
    """Return the weights of one head in which keys that are filler have never been."""
    problem = found.problem
    assert problem.q is not None
    assert problem.k is not None
    weights = np.zeros((len(problem.tokens), problem.keys))
    weights[:, KEPT] = soft(problem.q @ problem.k[KEPT].T / np.sqrt(problem.q.shape[1]))
    return weights


@pytest.mark.parametrize(
    "words",
    [
        ('mask.padding.tokens=["[PAD]"]',),
        ("mask.padding.tokens='[PAD]'",),
        ("mask.padding.keys=[true,true,false,true,true,false,false]",),
        ("convention=torch_mha", "mask.padding.keys=[false,false,true,false,false,true,true]"),
        ('mask.padding.tokens=["[PAD]"]', "mask.padding.lengths=1"),
    ],
    ids=" ".join,
)
def test_filler_is_as_if_it_were_not_there(words: tuple[str, ...]) -> None:
    found = comparison(*TEXT, *words, FORMS)
    assert all(row.error < 1e-12 for row in found.rows)
    weights = found.traces["matrix"].weights
    assert weights is not None
    np.testing.assert_allclose(weights[0], without_filler(found), atol=1e-14)


def test_it_joins_other_masks() -> None:
    words = ("mask=[causal,padding]", "mask.padding.keys=[false,true,true,true,false,true,true]", FORMS)
    both = comparison(*TEXT[:2], *words).traces["matrix"].weights
    either = comparison(*TEXT[:2], *words, "mask_join=or").traces["matrix"].weights
    assert both is not None
    assert either is not None
    causal, kept = np.tri(7, dtype=bool), np.array([0, 1, 1, 1, 0, 1, 1], bool)
    np.testing.assert_array_equal(both[0] > 0, causal & kept)
    np.testing.assert_array_equal(either[0] > 0, causal | kept)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("mask.padding.tokens=[pad]", "padding.tokens=[pad]: no key has that name; the keys are [CLS], she, [PAD]"),
        ("mask.padding.keys=[true,false]", "mask.padding.keys has 2 entries, but there are 7 keys"),
        ("mask.padding.keys=[1,0,1,1,1,1,1]", "mask.padding.keys[0]=1: expected true or false"),
        ("mask.padding.keys=3", "mask.padding.keys=3: expected a list"),
        ("align=middle", "unknown align 'middle'; choose one of top_left, bottom_right, before_filler"),
    ],
)
def test_what_names_no_filler_is_refused(words: str, message: str) -> None:
    assert message in refusal(comparison, *TEXT, words)


def test_the_last_query_stands_beside_the_last_key_that_is_no_filler() -> None:
    draws = [f"embeddings.{name}={np.random.default_rng(0).standard_normal((rows, 4)).tolist()}" for name, rows in
             (("q", 2), ("k", 6), ("v", 6))]  # fmt: skip
    words = ("embeddings=inline", "projections=none", *draws, "mask=[causal,padding]", "head=1", FORMS)
    for filler, last in (("lengths=4", 4), ("keys=[true,false,true,true,true,false]", 5)):
        found = comparison(*words, f"mask.padding.{filler}", "align=before_filler")
        weights = found.traces["matrix"].weights
        assert weights is not None
        kept = np.arange(6) < 4 if last == 4 else np.array([1, 0, 1, 1, 1, 0], bool)
        causal = np.arange(6) <= np.arange(2)[:, None] + last - 2
        np.testing.assert_array_equal(weights[0] > 0, causal & kept)
        assert all(row.error < 1e-12 for row in found.rows)


@given(st.lists(st.booleans(), min_size=1, max_size=12).map(tuple))
def test_the_length_without_filler_ends_at_the_last_key_that_is_none(kept: tuple[bool, ...]) -> None:
    assert Holes(kept).unpadded(12) == max((end for end, seen in enumerate(kept, 1) if seen), default=0)
