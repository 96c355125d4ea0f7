"""Scales that a configuration sets, clips of large scores, and types of fewer bits inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import attn_exp
from tests.diagnosis.functions import attend, logits, raw, softmax

# A number of the configuration is a setting; what the code does to the scores beside it is not


@dataclass
class Settings:
    hidden_size: int = 64
    num_attention_heads: int = 4
    attention_multiplier: float = 0.4
    query_scalar: int = 256
    softcapping: float = 30.0


def layer_of(scale: Callable[[Settings], float], cap: Callable[[Settings], float] = lambda _: 0.0) -> Any:
    """Return a class whose scores are multiplied by what it makes of its configuration, and capped."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
    from tests.diagnosis.layers import Layer  # noqa: PLC0415 - it needs PyTorch

    class OfSettings(Layer):
        def __init__(self, config: Settings) -> None:
            super().__init__(config.hidden_size, config.num_attention_heads)
            self.scale, self.cap = scale(config), cap(config)

        def score(self, q: Any, k: Any) -> Any:
            scores = q @ k.mT * self.scale
            return self.cap * torch.tanh(scores / self.cap) if self.cap else scores

    return OfSettings


@pytest.mark.parametrize(
    ("scale", "cap", "under"),
    [
        (lambda config: config.attention_multiplier, lambda _: 0.0, "scale=0.4"),
        (lambda config: config.query_scalar**-0.5, lambda _: 0.0, "scale=0.0625"),
        (
            lambda config: config.query_scalar**-0.5,
            lambda config: config.softcapping,
            "scale=0.0625 score=softcap score.softcap.cap=30",
        ),
    ],
)
def test_a_scale_that_is_set_is_no_mistake(scale: Any, cap: Any, under: str) -> None:
    verdict = attn_exp.check(layer_of(scale, cap), quick=True)
    assert verdict.passed and verdict.right_under == under, verdict


@pytest.mark.parametrize(
    "scale",
    [
        lambda config: config.attention_multiplier * 0.5,
        lambda config: 1 / config.query_scalar,  # its root is forgotten
        lambda config: config.attention_multiplier**0,
    ],
)
def test_what_the_code_does_beside_it_is_one(scale: Any) -> None:
    verdict = attn_exp.check(layer_of(scale), quick=True)
    assert verdict.is_wrong and any("scale" in name for name in verdict.mistakes), verdict


@pytest.mark.long
@pytest.mark.parametrize("words", [["scale=0.3"], []])
def test_a_scale_that_is_given_and_not_used_is_said(words: list[str]) -> None:
    def function(q: Any, k: Any, v: Any, scale: float | None = None) -> Any:
        return attend(q, k, v)

    answer = attn_exp.check(function, *words, quick=True)
    assert (answer.passed, answer.mistakes) == (False, ())
    assert answer.computes == "attention with scale=true, though the settings do not include it"


# What is a remark, and what is not


def clipped_logits(q: Any, k: Any, v: Any) -> Any:
    return softmax(np.clip(logits(q, k), -60, 60)) @ v


def clipped_before_the_scale(q: Any, k: Any, v: Any) -> Any:
    return softmax(np.clip(raw(q, k), -750, 750) / q.shape[-1] ** 0.5) @ v


def tiny_epsilon(q: Any, k: Any, v: Any) -> Any:
    return with_epsilon(q, k, v, 1e-9)


def with_epsilon(q: Any, k: Any, v: Any, epsilon: float) -> Any:
    powers = np.exp(logits(q, k) - logits(q, k).max(-1, keepdims=True))
    return powers / (powers.sum(-1, keepdims=True) + epsilon) @ v


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (clipped_logits, "scores are clipped"), (clipped_before_the_scale, "scores are clipped"),
        (tiny_epsilon, "added to the softmax sums"),
    ],
)  # fmt: skip
def test_what_only_large_numbers_or_the_last_digits_show_is_a_remark(function: Callable[..., Any], said: str) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert verdict.passed and verdict.mistakes == () and said in str(verdict), verdict


def clipped_always(q: Any, k: Any, v: Any) -> Any:
    return softmax(np.clip(logits(q, k), -2, 2)) @ v


def other_where_large(q: Any, k: Any, v: Any) -> Any:
    return softmax(np.where(np.abs(logits(q, k)) > 60, -logits(q, k), logits(q, k))) @ v


def single(q: Any, k: Any, v: Any) -> Any:
    return attend(*(array.astype(np.float32) for array in (q, k, v))).astype(np.float64)


def in_steps(q: Any, k: Any, v: Any) -> Any:
    """Values have 255 steps, as in quantized code."""
    step = np.abs(v).max() / 127 or 1.0
    return softmax(logits(q, k)) @ (np.round(v / step) * step)


def with_noise(q: Any, k: Any, v: Any) -> Any:
    noise = np.random.default_rng(int(abs(q.sum()) * 1e6)).normal(size=v.shape[-1])
    return attend(q, k, v) + noise * 1e-3


@pytest.mark.long
@pytest.mark.parametrize("function", [clipped_always, other_where_large, single, in_steps, with_noise])
def test_what_usual_numbers_show_is_wrong_and_has_no_name_of_another(function: Callable[..., Any]) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert verdict.is_wrong and verdict.mistakes == (), verdict


@pytest.mark.parametrize("epsilon", [1e-2, 1e-4, 1e-6])
def test_a_number_added_below_is_named_and_no_rounding(epsilon: float) -> None:
    verdict = attn_exp.check(lambda q, k, v: with_epsilon(q, k, v, epsilon), quick=True)
    assert (verdict.passed, verdict.mistakes) == (False, ("sum_epsilon",))


def test_a_scale_of_few_digits_is_no_half_precision() -> None:
    verdict = attn_exp.check(lambda q, k, v: softmax(raw(q, k) * 0.3545) @ v, quick=True)
    assert (verdict.passed, verdict.mistakes) == (False, ("scale_fixed",))


def test_all_in_float32_is_a_remark_in_pytorch_where_nobody_asked_for_float64() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

    def rounds(q: Any, k: Any, v: Any) -> Any:
        weights = torch.softmax(q.float() @ k.float().mT / q.shape[-1] ** 0.5, -1)
        return (weights @ v.float()).type_as(q)

    verdict = attn_exp.check(rounds, quick=True)
    assert verdict.passed and "it computes in float32" in str(verdict)
    assert not attn_exp.check(rounds, "dtype=float64", quick=True).passed
