"""Masks of functions: each shape and kind, True that hides, filler anywhere, words that are never read, and windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.experiment.verdict import HELD, REMARK
from tests.diagnosis.functions import attend, causal, logits, softmax


def hide(scores: Any, mask: Any, fill: float = -np.inf) -> Any:
    """Return the weights of scores of which the mask, if there is one, leaves some."""
    with np.errstate(all="ignore"):
        return softmax(scores if mask is None else np.where(mask, scores, fill))


# Each shape and each kind


def for_entries(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return hide(logits(q, k), mask[:, None] != 0, -1e9) @ v


def for_keys(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return hide(logits(q, k), None if mask is None else mask[:, None, None, :], -1e9) @ v


def no_booleans(q: Any, k: Any, v: Any, mask: Any) -> Any:
    assert mask.dtype != np.bool_
    return softmax(logits(q, k) + (1 - mask) * -1e9) @ v


def for_all_heads(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    q, k, v = (array.reshape(-1, *array.shape[2:]) for array in (q, k, v))
    assert mask is None or mask.shape == logits(q, k).shape
    return hide(logits(q, k), mask) @ v


def in_all_heads(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return for_all_heads(q, k, v, mask).reshape(q.shape)


def of_one_head(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    assert q.ndim == 3
    return for_all_heads(q[:, None], k[:, None], v[:, None], mask)


def lengths(q: Any, k: Any, v: Any, valid_lens: Any) -> Any:
    return hide(logits(q, k), np.arange(k.shape[-2]) < valid_lens[:, None, None, None], -1e6) @ v


def lengths_of_one_head(q: Any, k: Any, v: Any, valid_lens: Any = None) -> Any:
    assert q.ndim == 3 and (valid_lens is None or len(valid_lens) == len(q))
    return (
        hide(logits(q, k), None if valid_lens is None else np.arange(k.shape[-2]) < valid_lens[:, None, None], -1e6) @ v
    )


def in_an_object(q: Any, k: Any, v: Any, attr_mask: Any) -> Any:
    return hide(logits(q, k), attr_mask.mask) @ v


def read_within(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    def weigh() -> Any:
        return hide(logits(q, k), mask)

    return weigh() @ v


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (for_entries, "masks [b t s]"), (for_keys, ""), (no_booleans, "masks of ones and zeros"),
        (in_all_heads, "masks [b*h t s]"), (of_one_head, "[h t d]"), (lengths, ""), (lengths_of_one_head, "[b t d]"),
        (in_an_object, ""), (read_within, ""),
    ],
)  # fmt: skip
def test_a_right_function_passes_whatever_mask_it_wants(function: Callable[..., Any], said: str) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert verdict.passed and said in verdict.findings[0].message, verdict
    assert any(one.question in ("masks", "padding") and one.state == HELD for one in verdict.findings)


def causal_and_added(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """It is causal by itself, and adds what it is given as a mask."""
    scores = np.maximum(causal(logits(q, k)), -1e4)
    return softmax(scores if mask is None else scores + mask) @ v


def test_a_mask_that_is_added_beside_a_causal_one_inside_gets_numbers() -> None:
    verdict = attn_exp.check(causal_and_added, "mask=causal", quick=True)
    assert verdict.passed and "additive masks" in str(verdict), verdict


def of_lost_lengths(query: Any, key: Any, value: Any, valid_len: Any = None) -> Any:
    for row, length in zip(logits(query, key), [] if valid_len is None else valid_len, strict=False):
        row[:, int(length) :] = -1e6
    return attend(query, key, value)


def test_a_wrong_mask_keeps_its_name() -> None:
    verdict = attn_exp.check(of_lost_lengths, quick=True)
    assert verdict.is_wrong and verdict.mistakes == ("mask_ignored",), verdict


# True hides


def hides(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return np.nan_to_num(hide(logits(q, k), None if mask is None else ~mask)) @ v


def key_padding(q: Any, k: Any, v: Any, key_padding_mask: Any = None) -> Any:
    return hides(q, k, v, None if key_padding_mask is None else key_padding_mask[:, None, None, :])


def hides_keys(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return key_padding(q, k, v, mask)


@pytest.mark.parametrize(("function", "passed"), [(hides, False), (hides_keys, False), (key_padding, True)])
def test_a_mask_whose_true_hides_is_a_question_except_for_padding(function: Callable[..., Any], passed: bool) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert (verdict.passed, verdict.right_under) == (passed, "convention=torch_mha")
    assert verdict.mistakes == () and verdict.alike == (() if passed else (("mask_inverted",),))
    assert attn_exp.check(function, "convention=torch_mha", quick=True).passed


def test_true_that_hides_is_a_mistake_where_a_mask_is_asked_for() -> None:
    typed = attn_exp.check(hides, "mask=causal", quick=True)
    assert typed.mistakes == ("mask_inverted",) and not typed.right_under


@pytest.mark.full_search
@pytest.mark.long
def test_a_convention_of_masks_comes_before_a_mistake_beside_it() -> None:
    def leaks(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return hide(logits(q, k), None if mask is None else ~mask, 1e-9) @ v

    verdict = attn_exp.check(leaks, quick=True)
    assert (verdict.passed, verdict.mistakes) == (False, ("mask_small_fill",)), verdict
    assert verdict.computes.startswith("with convention=torch_mha")
    assert verdict.alike[0] == ("mask_inverted", "mask_small_fill")


def of_two(scores: Any, v: Any, over_all: Any, of_keys: Any, fill: float = -np.inf) -> Any:
    """Attend under a mask for scores and one for keys, either of which may be missing."""
    scores = scores if over_all is None else np.where(over_all, scores, fill)
    return hide(scores, None if of_keys is None else of_keys[:, None, None, :]) @ v


def inverted(mask: Any) -> Any:
    return None if mask is None else ~mask


def padding_hides(q: Any, k: Any, v: Any, key_padding_mask: Any = None, attn_mask: Any = None) -> Any:
    return of_two(logits(q, k), v, attn_mask, inverted(key_padding_mask))


def mask_hides(q: Any, k: Any, v: Any, attn_mask: Any = None, key_padding_mask: Any = None) -> Any:
    return of_two(logits(q, k), v, inverted(attn_mask), key_padding_mask)


def causal_hides(q: Any, k: Any, v: Any, mask: Any = None, causal_mask: Any = None) -> Any:
    return of_two(logits(q, k), v, inverted(causal_mask), mask)


@pytest.mark.parametrize(
    ("function", "word", "state"),
    [
        (padding_hides, "key_padding_mask", HELD),
        (mask_hides, "attn_mask", REMARK),  # True hides is usual for padding and causal masks alone
        (causal_hides, "causal_mask", HELD),
    ],
)
def test_each_of_two_masks_is_read_in_its_own_convention_which_is_said(
    function: Callable[..., Any], word: str, state: str
) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert not verdict.is_wrong, verdict.computes
    said = {one.question: (one.state, one.message) for one in verdict.findings}
    assert said[f"masks as {word}"][0] == state and said[f"masks as {word}"][1].startswith("True means hidden")
    assert {"masks", "padding"} <= said.keys(), "both are asked"


def test_an_inverted_mask_beside_another_is_named_where_the_convention_is_declared() -> None:
    assert attn_exp.check(padding_hides, "convention=torch_mha", quick=True).mistakes == ("mask_inverted",)


# Words for masks that are never read


def second_word(q: Any, k: Any, v: Any, mask: Any = None, attn_mask: Any = None) -> Any:
    return hide(logits(q, k), attn_mask, -1e9) @ v


def second_word_turned(q: Any, k: Any, v: Any, mask: Any = None, attn_mask: Any = None) -> Any:
    return hide(logits(q, k), None if attn_mask is None else attn_mask.swapaxes(-1, -2), -1e9) @ v


def only_word(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return attend(q, k, v)


def switch_for_nothing(q: Any, k: Any, v: Any, attn_mask: Any = None, is_causal: bool = False) -> Any:
    return hide(logits(q, k), attn_mask, -1e9) @ v


def test_the_word_for_a_mask_that_is_read_is_asked() -> None:
    verdict = attn_exp.check(second_word)
    assert verdict.passed and "mask (its code never reads it)" in verdict.not_asked, verdict
    assert not any(said.startswith("masks") for said in verdict.not_asked)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (second_word_turned, "mask_transposed"), (only_word, "mask_ignored"), (switch_for_nothing, "causal_ignored"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_word_that_counts_is_named(function: Callable[..., Any], name: str) -> None:
    assert attn_exp.check(function).mistakes == (name,)


def refusing(q: Any, k: Any, v: Any, softcap: Any = None, window: Any = None) -> Any:
    if softcap is not None:
        raise AssertionError("softcap is for other kernels")
    if window is not None:
        raise ValueError("nothing but whole rows here")
    return attend(q, k, v)


def test_a_keyword_refused_in_words_is_not_offered() -> None:
    verdict = attn_exp.check(refusing, quick=True)
    states = {one.question: one.state for one in verdict.findings}
    assert verdict.passed and (states["softcap"], states["window"]) == ("not offered", "not offered"), verdict


# Filler anywhere among the keys

ASKED = (
    "mask=padding mask.padding.tokens=[likes]",
    "mask=padding mask.padding.keys=[false,true,true,false]",
    "mask=padding mask.padding.tokens=[a] embeddings=words embeddings.text=[b,a,c,a]",
    "mask=[padding,causal] mask.padding.tokens=[she] mask_join=or",
)


def of_filler(query: Any, key: Any, value: Any, attn_mask: Any = None, key_padding_mask: Any = None) -> Any:
    return of_two(logits(query, key), value, attn_mask, key_padding_mask)


def at_the_end(query: Any, key: Any, value: Any, attn_mask: Any = None, key_padding_mask: Any = None) -> Any:
    """Attend as if filler stood at the end alone."""
    if key_padding_mask is not None:
        key_padding_mask = np.arange(key_padding_mask.shape[-1]) < key_padding_mask.sum(-1, keepdims=True)
    return of_filler(query, key, value, attn_mask, key_padding_mask)


@pytest.mark.parametrize("words", ASKED)
def test_a_function_that_knows_filler_anywhere_passes(words: str) -> None:
    assert attn_exp.check(of_filler, *words.split(), quick=True).passed


@pytest.mark.long
@pytest.mark.parametrize("words", [ASKED[0], ASKED[2]])
def test_one_that_knows_filler_at_the_end_alone_does_not(words: str) -> None:
    assert not attn_exp.check(at_the_end, *words.split(), quick=True).passed
    assert attn_exp.check(at_the_end, "mask=padding", "mask.padding.lengths=3", quick=True).passed


def test_filler_that_no_token_is_called() -> None:
    with pytest.raises(attn_exp.UserError, match=r"no key has that name; the keys are she, likes, coffee"):
        attn_exp.check(of_filler, "mask=padding", "mask.padding.tokens=[PAD]")


@pytest.mark.parametrize(("late", "mistakes"), [(0, ()), (1, ("padding_one_long",))])
def test_each_entry_may_have_a_length_of_its_own(late: int, mistakes: tuple[str, ...]) -> None:
    def function(q: Any, k: Any, v: Any, lengths: Any) -> Any:
        return hide(logits(q, k), np.arange(k.shape[-2]) < np.asarray(lengths)[:, None, None, None] + late) @ v

    answer = attn_exp.check(function, "mask=padding", "mask.padding.lengths=[6,4,5]", quick=True)
    assert (answer.passed, answer.mistakes) == (not mistakes, mistakes), answer


def of_windows(inside: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return a function whose optional window shows the keys where `inside(i - j, window)` is true."""

    def windowed(q: Any, k: Any, v: Any, window_size: Any = None) -> Any:
        back = np.arange(q.shape[-2])[:, None] - np.arange(k.shape[-2])
        far = False if window_size is None else ~inside(back, window_size)
        return softmax(np.where(far, -np.inf, logits(q, k))) @ v

    return windowed


@pytest.mark.parametrize(
    ("inside", "named"),
    [
        (lambda back, window: (back >= 0) & (back < int(window)), ()),
        (lambda back, window: (back >= 0) & (back <= int(window)), ("window_one_wide",)),
        (lambda back, window: abs(back) < int(window), ()),
        (lambda back, window: abs(back) <= int(window), ()),
        (lambda back, window: (back <= window[0]) & (back >= -window[1]), ()),
        (lambda back, window: (back < window[0]) & (back >= -window[1]), ("window_one_narrow",)),
    ],
)
def test_a_window_is_a_pair_or_a_number_of_keys(inside: Callable[[Any, Any], Any], named: tuple[str, ...]) -> None:
    verdict = attn_exp.check(of_windows(inside), quick=True)
    assert (verdict.passed, verdict.mistakes) == (not named, named), verdict
    assert "window" in {one.question for one in verdict.findings}
