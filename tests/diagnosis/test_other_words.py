"""What was not asked for and is no mistake: the check passes under other words, says them, and holds what was typed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.diagnosis.asking.request import understood, with_words
from tests.zoo.odd_right import softmax


def logits(q: Any, k: Any) -> Any:
    return q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5


def turned(heads: Any, interleaved: bool) -> Any:
    """Turn pairs as rotary positions do: neighbours, or halves."""
    size = heads.shape[-1]
    angles = np.arange(heads.shape[-2])[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)
    first, second = (heads[..., ::2], heads[..., 1::2]) if interleaved else np.split(heads, 2, axis=-1)
    one, other = first * np.cos(angles) - second * np.sin(angles), first * np.sin(angles) + second * np.cos(angles)
    if interleaved:
        return np.stack([one, other], axis=-1).reshape(heads.shape)
    return np.concatenate([one, other], axis=-1)


def causal(q: Any, k: Any, v: Any) -> Any:
    seen = np.tri(q.shape[-2], k.shape[-2], dtype=bool)
    return softmax(np.where(seen, logits(q, k), -np.inf)) @ v


def causal_of_the_end(q: Any, k: Any, v: Any) -> Any:
    rows, keys = q.shape[-2], k.shape[-2]
    return softmax(np.where(np.tri(rows, keys, keys - rows, dtype=bool), logits(q, k), -np.inf)) @ v


def last_three(q: Any, k: Any, v: Any) -> Any:
    place = np.arange(q.shape[-2])[:, None] - np.arange(k.shape[-2])
    return softmax(np.where((place >= 0) & (place < 3), logits(q, k), -np.inf)) @ v


def rotary(q: Any, k: Any, v: Any) -> Any:
    return softmax(logits(turned(q, False), turned(k, False))) @ v


def rotary_and_causal(q: Any, k: Any, v: Any) -> Any:
    return causal(turned(q, True), turned(k, True), v)


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (causal, "mask=causal"),
        (causal_of_the_end, "mask=causal align=bottom_right"),
        (last_three, "mask=[causal,window] mask.window.left=2"),
        (rotary, "position=rope"),
        (rotary_and_causal, "mask=causal position=rope position.rope.interleaved=true"),
    ],
)
def test_what_is_right_under_other_words_passes_and_says_them(function: Any, words: str) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert (verdict.passed, verdict.mistakes, verdict.right_under) == (True, (), words), verdict
    assert attn_exp.check(function, *words.split(), quick=True).passed


@pytest.mark.long
def test_a_keyword_that_was_not_told_so_is_no_other_convention() -> None:
    def always(q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
        return causal(q, k, v)

    verdict = attn_exp.check(always, quick=True)
    assert not verdict.passed and not verdict.right_under


@pytest.mark.long
@pytest.mark.parametrize("word", ["scale=false", "score=softcap"])
def test_another_scale_or_score_is_no_convention(word: str) -> None:
    def other(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.swapaxes(-1, -2) if word == "scale=false" else 30 * np.tanh(logits(q, k) / 30)
        return softmax(scores) @ v

    assert not attn_exp.check(other, quick=True).passed


def test_a_mask_whose_true_hides_is_a_convention_that_does_not_pass() -> None:
    def hides(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        scores = logits(q, k) if mask is None else np.where(mask, -np.inf, logits(q, k))
        return np.nan_to_num(softmax(scores)) @ v

    verdict = attn_exp.check(hides, quick=True)
    assert (verdict.passed, verdict.mistakes, verdict.alike) == (False, (), (("mask_inverted",),))
    assert verdict.right_under == "convention=torch_mha"
    assert attn_exp.check(hides, "convention=torch_mha", quick=True).passed
    typed = attn_exp.check(hides, "mask=causal", quick=True)
    assert typed.mistakes == ("mask_inverted",) and not typed.right_under


@pytest.mark.full_search
@pytest.mark.long
def test_a_convention_of_masks_comes_before_a_mistake_beside_it() -> None:
    def leaks(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return softmax(logits(q, k) if mask is None else np.where(mask, 1e-9, logits(q, k))) @ v

    verdict = attn_exp.check(leaks, quick=True)
    assert (verdict.passed, verdict.mistakes) == (False, ("mask_small_fill",)), verdict
    assert verdict.computes.startswith("with convention=torch_mha")
    assert verdict.alike[0] == ("mask_inverted", "mask_small_fill")


def test_a_causal_mask_that_is_none_by_default_is_an_array() -> None:
    def attention(q: Any, k: Any, v: Any, causal_mask: Any = None) -> Any:
        scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
        scores = scores if causal_mask is None else np.where(causal_mask.astype(bool), scores, -1e30)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True) @ v

    verdict = attn_exp.check(attention, quick=True)
    assert verdict.passed and any(one.rung == "masks" and one.state == "held" for one in verdict.findings), verdict


def test_what_more_words_do_not_say_stays_as_it_is_and_the_later_word_counts() -> None:
    asked = replace(understood(["mask=window", "layout=td", "dtype=float32"]), size=32, scale_set=("scale", -0.5))
    more = with_words(asked, "mask=causal dtype=float64")
    assert more.typed == {"mask=causal"} and more.is_causal
    assert (more.layout, more.dtype, more.size, more.scale_set) == ("td", "float64", 32, ("scale", -0.5))
