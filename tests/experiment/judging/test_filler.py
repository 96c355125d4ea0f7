"""Filler anywhere among the keys, by its name or place: a check asks for it in lengths of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp

ASKED = (
    "mask=padding mask.padding.tokens=[likes]",
    "mask=padding mask.padding.keys=[false,true,true,false]",
    "mask=padding mask.padding.tokens=[a] embeddings=words embeddings.text=[b,a,c,a]",
    "mask=[padding,causal] mask.padding.tokens=[she] mask_join=or",
)


def softmax(scores: Any) -> Any:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def mine(query: Any, key: Any, value: Any, attn_mask: Any = None, key_padding_mask: Any = None) -> Any:
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    if key_padding_mask is not None:
        scores = np.where(key_padding_mask[:, None, None, :], scores, -np.inf)
    return softmax(scores if attn_mask is None else np.where(attn_mask, scores, -np.inf)) @ value


def at_the_end(query: Any, key: Any, value: Any, attn_mask: Any = None, key_padding_mask: Any = None) -> Any:
    """Attend as if filler stood at the end alone."""
    if key_padding_mask is not None:
        places = np.arange(key_padding_mask.shape[-1])
        key_padding_mask = places < key_padding_mask.sum(-1, keepdims=True)
    return mine(query, key, value, attn_mask, key_padding_mask)


@pytest.mark.parametrize("words", ASKED)
def test_a_function_that_knows_filler_anywhere_passes(words: str) -> None:
    assert attn_exp.check(mine, *words.split(), quick=True).passed


@pytest.mark.parametrize("words", ASKED[:3])
def test_one_that_knows_filler_at_the_end_alone_does_not(words: str) -> None:
    verdict = attn_exp.check(at_the_end, *words.split(), quick=True)
    assert not verdict.passed
    assert attn_exp.check(at_the_end, "mask=padding", "mask.padding.lengths=3", quick=True).passed


def test_filler_that_no_token_is_called() -> None:
    with pytest.raises(attn_exp.UserError, match=r"no key is called so; there are she, likes, coffee"):
        attn_exp.check(mine, "mask=padding", "mask.padding.tokens=[PAD]")
