"""A mistake in a function has its name, under a condition too; and what no mistake explains has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp import mistakes
from attn_exp.experiment.verdict import Verdict
from tests.diagnosis.functions import attend, causal, logits, raw, softmax
from tests.zoo.case import Case
from tests.zoo.wrong_code import CODE


def state(verdict: Verdict, question: str) -> str:
    return next(finding.state for finding in verdict.findings if finding.question == question)


# Mistakes that only code makes


@pytest.mark.parametrize("case", CODE, ids=lambda case: case.name)
def test_each_mistake_of_code_is_named_alone(case: Case) -> None:
    verdict = attn_exp.check(case.function, *case.settings)
    is_remark = case.mistake == "one_maximum"  # no logits of people are so far apart
    assert (verdict.passed, verdict.mistakes) == (is_remark, (case.mistake,)), verdict


def test_each_of_the_catalogue_has_a_function() -> None:
    of_code = {name for name in mistakes.names() if mistakes.mistake(name).of_code}
    elsewhere = {"dropout_on", "batch_mixed", "log_softmax", "tokens_not_transposed"}
    assert of_code - elsewhere == {case.mistake for case in CODE} - {"mask_stale"}


def one_argument(queries: Any, keys: Any, values: Any, mask: Any = None) -> Any:
    keys = queries.copy()
    values = queries.copy()
    scores = logits(queries, keys)
    return softmax(scores if mask is None else np.where(mask, scores, -1e9)) @ values


def zeros_and_turned(q: Any, k: Any, v: Any) -> Any:
    scores = np.triu(logits(q, k))
    return softmax(np.where(scores == 0, -9e15, scores)) @ v


def three_and_a_large_fill(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    scores = q @ k.reshape(*k.shape[:2], k.shape[3], k.shape[2]) / q.shape[1] ** 0.5
    return softmax(scores if mask is None else np.where(mask, scores, -1e9), -2) @ v


def turned_and_by_d(q: Any, k: Any, v: Any) -> Any:
    scores = raw(q, k) / q.shape[-1]
    return softmax(np.where(np.triu(np.ones(scores.shape[-2:], bool)), scores, -np.inf)) @ v


def of_another_order(q: Any, k: Any, v: Any) -> Any:
    """As a function that takes [query, value, key] is called; the scale is a mistake of its own."""
    return softmax(raw(q, v)) @ k


@pytest.mark.full_search
@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "words", "names"),
    [
        (one_argument, "", {"keys_from_queries", "values_from_queries"}),
        (zeros_and_turned, "mask=causal", {"causal_flipped", "zero_scores_hidden"}),
        (three_and_a_large_fill, "layout=bhtd", {"keys_viewed", "scale_by_sqrt_heads", "softmax_over_queries"}),
        (turned_and_by_d, "mask=causal", {"causal_flipped", "scale_by_d"}),
        (of_another_order, "", {"no_scale", "qkv_order"}),
    ],
)
def test_several_mistakes_are_named_together(function: Callable[..., Any], words: str, names: set[str]) -> None:
    assert set(attn_exp.check(function, *words.split(), quick=True).mistakes) == names


def in_running_sums(q: Any, k: Any, v: Any) -> Any:
    """Causal; 0 times what overflowed is NaN, where -inf would have been 0."""
    sums, total = np.zeros((*q.shape[:-1], v.shape[-1])), np.zeros((*q.shape[:-1], 1))
    for key in range(k.shape[-2]):
        powers = np.exp(logits(q, k[..., [key], :])) * (np.arange(q.shape[-2])[:, None] >= key)
        sums, total = sums + powers * v[..., key, None, :], total + powers
    return sums / total


def without_keepdims(q: Any, k: Any, v: Any) -> Any:
    assert q.ndim == 2
    powers = np.exp(logits(q, k) - logits(q, k).max(-1))
    return powers / powers.sum(-1) @ v


def of_weights(q: Any, k: Any, v: Any) -> Any:
    """A letter stands twice."""
    return np.einsum("bhtt,bhte->bhte", softmax(logits(q, k)), v)


@pytest.mark.parametrize(
    ("function", "words", "name"),
    [
        (in_running_sums, ("mask=causal",), "no_max_subtraction"), (without_keepdims, (), "keepdims_missing"),
        (of_weights, (), "weights_diagonal"),
    ],
)  # fmt: skip
def test_a_bug_as_people_write_it_has_its_name(function: Callable[..., Any], words: tuple[str, ...], name: str) -> None:
    assert attn_exp.check(function, *words, quick=True).mistakes == (name,)


@pytest.mark.long
@pytest.mark.parametrize("over_the_sum", [False, True])
@pytest.mark.parametrize("fill", [-np.inf, -1e9, float(np.finfo(np.float64).min)])
def test_logits_as_weights_are_one_mistake_whatever_fills_in_behind_a_mask(over_the_sum: bool, fill: float) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")

    def weights_are_logits(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        scores = torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5
        scores = scores if mask is None else scores.masked_fill(~mask, fill)
        return (scores / scores.sum(dim=-1, keepdim=True) if over_the_sum else scores) @ v

    verdict = attn_exp.check(weights_are_logits, quick=True)
    assert verdict.mistakes == ("sum_normalized" if over_the_sum else "no_softmax",), verdict


# Under a condition


def turned_where_square(q: Any, k: Any, v: Any) -> Any:
    weights = softmax(logits(q, k))
    return (weights.swapaxes(-1, -2) if q.shape[-2] == k.shape[-2] else weights) @ v


def newest_key_lost(q: Any, k: Any, v: Any) -> Any:
    kept = slice(None, -1 if k.shape[-2] > q.shape[-2] else None)
    return attend(q, k[..., kept, :], v[..., kept, :])


def unscaled_in_a_batch(q: Any, k: Any, v: Any) -> Any:
    return softmax(raw(q, k) if len(q) > 1 else logits(q, k)) @ v


def unscaled_if_causal(q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
    return softmax(causal(raw(q, k)) if is_causal else logits(q, k)) @ v


def mask_lost_beside_causal(q: Any, k: Any, v: Any, mask: Any = None, is_causal: bool = False) -> Any:
    scores = logits(q, k)
    return softmax(causal(scores) if is_causal else scores if mask is None else np.where(mask, scores, -np.inf)) @ v


@pytest.mark.long
@pytest.mark.parametrize(
    "function",
    [turned_where_square, newest_key_lost, unscaled_in_a_batch, unscaled_if_causal, mask_lost_beside_causal],
)
def test_a_mistake_under_a_condition_is_wrong(function: Callable[..., Any]) -> None:
    assert attn_exp.check(function).is_wrong


# No name where none is right


def shares_of(powers: Any) -> Any:
    return powers / powers.sum(axis=-1, keepdims=True)


def powers_of(q: Any, k: Any) -> Any:
    return np.exp(logits(q, k) - logits(q, k).max(-1, keepdims=True))


def late_given(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return shares_of(powers_of(q, k) if mask is None else powers_of(q, k) * mask) @ v


@pytest.mark.long
def test_a_mask_after_exp_has_no_name_but_a_stage() -> None:
    verdict = attn_exp.check(late_given, "mask=causal", quick=True)
    assert not verdict.passed and verdict.mistakes == ()
    assert (state(verdict, "large inputs"), state(verdict, "values")) == ("broken", "held")
    assert verdict.stage == "weights"


def nan_for_hidden(q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
    """NaN stands where -inf should, and the maximum is taken of it."""
    scores = causal(logits(q, k)) if is_causal else logits(q, k)
    powers = np.exp(scores - np.where(np.isinf(scores), np.nan, scores).max(axis=-1, keepdims=True))
    return shares_of(powers) @ v


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "stage"), [((), "masked"), (("mask=causal",), "weights")]
)  # all that is asked is masked then
def test_where_little_but_nan_comes_back_no_mask_is_named(words: tuple[str, ...], stage: str) -> None:
    verdict = attn_exp.check(nan_for_hidden, *words, quick=True)
    assert verdict.is_wrong and not verdict.mistakes and verdict.stage == stage, verdict


def of_halves(q: Any, k: Any, v: Any) -> Any:
    powers = powers_of(q, k) ** 2 + powers_of(q, k)
    return shares_of(powers) / 2 @ v


def bent_values(q: Any, k: Any, v: Any) -> Any:
    return softmax(logits(q, k)) @ np.where(v > 0, v, v * v)


def cubes(q: Any, k: Any, v: Any) -> Any:
    return shares_of(powers_of(q, k) ** 3 + powers_of(q, k)) @ v


@pytest.mark.long
@pytest.mark.parametrize(("function", "stage"), [(of_halves, "weights"), (bent_values, "context"), (cubes, "weights")])
def test_what_has_no_name_is_told_by_its_stage(function: Callable[..., Any], stage: str) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert (verdict.passed, verdict.unexplained, verdict.mistakes) == (False, True, ())
    assert verdict.stage == stage, verdict


def test_the_number_that_was_read_off_and_what_was_not_asked_are_said() -> None:
    verdict = attn_exp.check(lambda q, k, v: softmax(0.9 * logits(q, k)) @ v, quick=True)
    assert "They are 0.9 times what they should be." in verdict.computes
    assert verdict.not_asked[0] == "masks (it takes no mask argument)"
    assert "not checked: masks (it takes no mask argument)" in str(verdict)


def drops(q: Any, k: Any, v: Any, dropout: float = 0.3) -> Any:
    weights = softmax(logits(q, k))
    return weights * (np.random.random(weights.shape) >= dropout) / (1 - dropout) @ v


def test_a_default_that_nobody_asked_for_is_turned_off_and_told() -> None:
    answer = attn_exp.check(drops, quick=True)
    assert answer.passed and answer.mistakes == ("dropout_on",)
    assert "its default dropout=0.3 is kept only where a case asks for it" in str(answer)


@pytest.mark.long
def test_two_mistakes_that_cancel_each_other_explain_nothing() -> None:
    """Right but for float16 inside, to the 8 bits of its answers: no softmax and then two are one."""

    def narrow(q: Any, k: Any, v: Any) -> Any:
        context = softmax(logits(q, k).astype(np.float16)).astype(np.float32) @ v.astype(np.float32)
        return (context.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(float)

    assert "softmax_twice" not in attn_exp.check(narrow, quick=True).mistakes
