"""Bugs as people write them in functions of arrays: arguments that are overwritten, flags that lead nowhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp


def softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def of_one_argument(queries: Any, keys: Any, values: Any, mask: Any = None) -> Any:
    keys = queries.copy()
    values = queries.copy()
    scores = queries @ keys.swapaxes(-1, -2) / np.sqrt(queries.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    return softmax(scores) @ values


@pytest.mark.full_search
@pytest.mark.long
def test_keys_and_values_that_are_overwritten_by_queries_are_named() -> None:
    verdict = attn_exp.check(of_one_argument)
    assert verdict.mistakes == ("keys_from_queries", "values_from_queries"), verdict


def window_set_and_lost(q: Any, k: Any, v: Any, causal: bool = False, window_size: Any = (-1, -1)) -> Any:
    """Take `[b t h d]`; what causal sets is a window that nobody reads."""
    if causal:
        window_size = (window_size[0], 0)
    scores = np.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1])
    return np.einsum("bhts,bshd->bthd", softmax(scores), v)


def test_a_flag_that_sets_a_window_which_nobody_reads_is_named_in_its_own_layout() -> None:
    verdict = attn_exp.check(window_set_and_lost, "mask=causal")
    assert verdict.mistakes == ("causal_ignored",), verdict
    assert "[b t h d]" in verdict.findings[0].said


def holes(q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
    """Put NaN where -inf should stand, and take the maximum of it."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    hidden = np.triu(np.ones(scores.shape[-2:], bool), 1) if is_causal else np.zeros(scores.shape[-2:], bool)
    scores = np.where(hidden, np.nan, scores)
    powers = np.where(hidden, 0.0, np.exp(scores - scores.max(axis=-1, keepdims=True)))
    return powers / powers.sum(axis=-1, keepdims=True) @ v


@pytest.mark.long
@pytest.mark.parametrize("words", [(), ("mask=causal",)])
def test_where_little_but_nan_comes_back_no_mask_is_named_and_the_queries_are(words: tuple[str, ...]) -> None:
    verdict = attn_exp.check(holes, *words)
    assert not verdict.passed
    assert not verdict.mistakes, verdict
    assert "Every query from which a key is hidden gets NaN" in verdict.computes


class Holes:
    """A layer in which every query from which a key is hidden gets NaN, as one that hides too late does."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        self.num_heads = num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = np.random.default_rng(0).standard_normal((4, d_model, d_model)) / 4

    def __call__(self, x: Any, mask: Any = None) -> Any:
        b, t, width = x.shape
        cut = (b, t, self.num_heads, width // self.num_heads)
        q, k, v = ((x @ side).reshape(cut).swapaxes(1, 2) for side in (self.W_q, self.W_k, self.W_v))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        weights = softmax(scores if mask is None else np.where(mask == 0, np.nan, scores))
        weights = weights if mask is None else np.where(mask == 0, 0.0, weights)
        return (weights @ v).swapaxes(1, 2).reshape(b, t, width) @ self.W_o


@pytest.mark.long
def test_a_layer_of_nan_is_not_taken_for_one_that_hides_too_late() -> None:
    verdict = attn_exp.check(Holes, quick=True)
    assert not verdict.passed and not verdict.mistakes, verdict


def raw(q: Any, k: Any, v: Any) -> Any:
    powers = np.exp(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5)
    return (powers / powers.sum(axis=-1, keepdims=True)) @ v


def below_one(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    powers = np.exp(scores - scores.max())
    return (powers / powers.sum(axis=-1, keepdims=True)) @ v


@pytest.mark.long
@pytest.mark.parametrize(("function", "name"), [(raw, "no_max_subtraction"), (below_one, "one_maximum")])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logits_that_exp_cannot_hold_are_a_remark(function: Any, name: str, dtype: str) -> None:
    verdict = attn_exp.check(function, f"dtype={dtype}", quick=True)
    assert verdict.passed and verdict.mistakes == (name,), verdict
    assert next(one.state for one in verdict.findings if one.rung == "large inputs") == "remark"


def of_one_head(largest: bool | None, sums: bool) -> Any:
    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.T / np.sqrt(q.shape[1])
        powers = np.exp(scores if largest is None else scores - scores.max(axis=1, keepdims=not largest))
        return powers / powers.sum(axis=1, keepdims=not sums) @ v

    return attention


@pytest.mark.parametrize(("largest", "sums"), [(None, True), (False, True), (True, True), (True, False)])
def test_sums_and_largest_logits_without_keepdims_are_named(largest: bool | None, sums: bool) -> None:
    verdict = attn_exp.check(of_one_head(largest, sums), quick=True)
    assert verdict.mistakes == ("keepdims_missing",), verdict


@pytest.mark.full_search
@pytest.mark.long
@pytest.mark.parametrize(("sides", "names"), [("qvk", ("qkv_order",)), ("vqk", ("qkv_order",))])
def test_heads_that_are_handed_over_in_another_order_are_named(sides: str, names: tuple[str, ...]) -> None:
    """As to a function that takes [query, value, key]; the scale beside it is a mistake of its own."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        given = {"q": q, "k": k, "v": v}
        asks, answers, mixed = (given[side] for side in sides)
        scores = asks @ np.swapaxes(answers, -1, -2)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True) @ mixed

    assert set(attn_exp.check(attend, quick=True).mistakes) == {"no_scale", *names}
