"""Right under other words: the check passes and says them, or asks where two conventions are common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attn_exp
from tests.diagnosis.functions import attend, causal, logits, raw, softmax


def turned(heads: Any, interleaved: bool) -> Any:
    """Turn pairs as rotary positions do: neighbours, or halves."""
    size = heads.shape[-1]
    angles = np.arange(heads.shape[-2])[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)
    first, second = (heads[..., ::2], heads[..., 1::2]) if interleaved else np.split(heads, 2, axis=-1)
    one, other = first * np.cos(angles) - second * np.sin(angles), first * np.sin(angles) + second * np.cos(angles)
    if interleaved:
        return np.stack([one, other], axis=-1).reshape(heads.shape)
    return np.concatenate([one, other], axis=-1)


def causal_by_itself(q: Any, k: Any, v: Any) -> Any:
    return softmax(causal(logits(q, k))) @ v


def causal_of_the_end(q: Any, k: Any, v: Any) -> Any:
    return softmax(np.maximum(causal(logits(q, k), k.shape[-2] - q.shape[-2]), -1e30)) @ v


def last_window(q: Any, k: Any, v: Any, window: int = 4) -> Any:
    place = np.arange(q.shape[-2])[:, None] - np.arange(k.shape[-2])
    return softmax(np.where((place >= 0) & (place < window), logits(q, k), -np.inf)) @ v


def last_three(q: Any, k: Any, v: Any) -> Any:
    return last_window(q, k, v, 3)


def last_thirteen(q: Any, k: Any, v: Any) -> Any:
    return last_window(q, k, v, 13)


def both_sides(q: Any, k: Any, v: Any, window: int = 3) -> Any:
    far = abs(np.arange(q.shape[-2])[:, None] - np.arange(k.shape[-2])) > window
    return softmax(np.where(far, -np.inf, logits(q, k))) @ v


def rotary(q: Any, k: Any, v: Any) -> Any:
    return attend(turned(q, False), turned(k, False), v)


def rotary_and_causal(q: Any, k: Any, v: Any) -> Any:
    return causal_by_itself(turned(q, True), turned(k, True), v)


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (causal_by_itself, "mask=causal"),
        (causal_of_the_end, "mask=causal align=bottom_right"),
        (last_three, "mask=[causal,window] mask.window.left=2"),
        (last_thirteen, "mask=[causal,window] mask.window.left=12"),
        (last_window, "mask=[causal,window] mask.window.left=3"),
        (both_sides, "mask=window mask.window.left=3 mask.window.right=3"),
        (rotary, "position=rope"),
        (rotary_and_causal, "mask=causal position=rope position.rope.interleaved=true"),
    ],
)
def test_what_is_right_under_other_words_passes_and_says_them(function: Callable[..., Any], words: str) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert (verdict.passed, verdict.mistakes, verdict.right_under) == (True, (), words), verdict
    assert f"{words}, though your settings do not include it" in verdict.computes
    assert attn_exp.check(function, *words.split(), quick=True).passed


def always_causal(q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
    return causal_by_itself(q, k, v)


def unscaled(q: Any, k: Any, v: Any) -> Any:
    return softmax(raw(q, k)) @ v


def capped(q: Any, k: Any, v: Any) -> Any:
    return softmax(30 * np.tanh(logits(q, k) / 30)) @ v


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (always_causal, ()), (unscaled, ()), (capped, ()),
        (causal_by_itself, ("mask=window", "mask.window.left=2")),  # what is typed is held
    ],
)  # fmt: skip
def test_what_is_no_convention_or_was_typed_otherwise_is_wrong(
    function: Callable[..., Any], words: tuple[str, ...]
) -> None:
    verdict = attn_exp.check(function, *words, quick=True)
    assert verdict.is_wrong and not verdict.right_under


def test_where_a_causal_mask_begins_is_a_question_to_the_user() -> None:
    verdict = attn_exp.check(causal_of_the_end, "mask=causal", quick=True)
    assert (verdict.outcome, verdict.right_under) == ("not verified", "align=bottom_right"), verdict
    assert "pass align=bottom_right or top_left" in verdict.not_verified[0]
    verdict = attn_exp.check(causal_of_the_end, "mask=causal", "align=top_left", quick=True)
    assert (verdict.outcome, verdict.mistakes) == ("wrong", ("causal_bottom_right",)), verdict


@pytest.mark.parametrize(
    ("sign", "signed", "words", "names", "under"),
    [
        (1, False, "score=alibi head=4", ("alibi_sign",), ""),
        (-1, False, "score=alibi head=4", (), ""),
        (1, True, "head=4", (), "score=alibi score.alibi.signed=true"),
    ],
)
def test_the_sign_of_alibi(sign: int, signed: bool, words: str, names: tuple[str, ...], under: str) -> None:
    def by_distance(q: Any, k: Any, v: Any) -> Any:
        """ALiBi with this sign, of distances or of positions alone."""
        slopes = np.array([2.0 ** (-8 * (head + 1) / q.shape[1]) for head in range(q.shape[1])])[:, None, None]
        keys = np.arange(k.shape[-2])
        bias = keys if signed else abs(np.arange(q.shape[-2])[:, None] - keys)
        return softmax(logits(q, k) + sign * slopes * bias) @ v

    verdict = attn_exp.check(by_distance, *words.split(), quick=True)
    assert verdict.mistakes == names and verdict.passed != bool(names) and under in verdict.right_under, verdict
