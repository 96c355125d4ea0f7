"""Bugs as people write them in functions of arrays: arguments that are overwritten, flags that lead nowhere."""

from __future__ import annotations

import math
from functools import partial
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


@pytest.mark.full_search
def test_several_mistakes_are_named_and_a_large_fill_is_none_of_them() -> None:
    def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        scores = q @ k.reshape(*k.shape[:2], k.shape[3], k.shape[2]) / q.shape[1] ** 0.5
        scores = scores if mask is None else np.where(mask, scores, -1e9)
        powers = np.exp(scores - scores.max(axis=-2, keepdims=True))
        return powers / powers.sum(axis=-2, keepdims=True) @ v

    verdict = attn_exp.check(attention, "layout=bhtd", quick=True)
    assert set(verdict.mistakes) == {"keys_viewed", "scale_by_sqrt_heads", "softmax_over_queries"}, verdict


def late_and_in_place(q: Any, k: Any, v: Any, mask: Any = None, scaling: bool = True) -> Any:
    """The weights are masked, with a small number; queries are scaled in place if a switch says so."""
    if scaling:
        q /= q.shape[-1] ** 0.5
    weights = softmax(q @ k.swapaxes(-1, -2))
    return (weights if mask is None else np.where(mask == 0, 1e-9, weights)) @ v


def test_a_late_mask_is_named_beside_changed_inputs() -> None:
    verdict = attn_exp.check(late_and_in_place, quick=True)
    assert set(verdict.mistakes) == {"mask_after_softmax", "changes_inputs"}, verdict


def test_what_is_passed_as_the_scale_may_divide_once() -> None:
    def attention(q: Any, k: Any, v: Any, scale: float | None = None) -> Any:
        root = math.sqrt(q.shape[-1]) if scale is None else scale
        return softmax(q @ k.swapaxes(-1, -2) / root) @ v

    def twice(q: Any, k: Any, v: Any, scale: float | None = None) -> Any:
        return attention(q / (math.sqrt(q.shape[-1]) if scale is None else scale), k, v, scale)

    verdict = attn_exp.check(attention, quick=True)
    assert verdict.passed and "what is passed as its scale divides" in str(verdict), verdict
    assert attn_exp.check(twice, quick=True).mistakes == ("scale_twice",)


def by_distance(q: Any, k: Any, v: Any, mask: Any = None, sign: int = 1, signed: bool = False) -> Any:
    """ALiBi with this sign, of distances or of positions alone."""
    heads, (rows, keys) = q.shape[1], (q.shape[-2], k.shape[-2])
    slopes = np.array([2.0 ** (-8 * (head + 1) / heads) for head in range(heads)])[:, None, None]
    bias = np.arange(keys) if signed else abs(np.arange(rows)[:, None] - np.arange(keys))
    logits = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]) + sign * slopes * bias
    return softmax(logits if mask is None else np.where(mask, logits, -np.inf)) @ v


@pytest.mark.long
def test_the_sign_of_alibi() -> None:
    words = ("score=alibi", "head=4")
    assert attn_exp.check(partial(by_distance, sign=1, signed=False), *words, quick=True).mistakes == ("alibi_sign",)
    assert attn_exp.check(partial(by_distance, sign=-1, signed=False), *words, quick=True).passed
    verdict = attn_exp.check(partial(by_distance, sign=1, signed=True), "head=4", quick=True)
    assert verdict.passed and "score=alibi score.alibi.signed=true" in verdict.right_under, verdict


def test_a_letter_that_stands_twice_in_einsum_is_named() -> None:
    def of_output(x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any) -> Any:
        return np.einsum("btd,dd->btd", of_weights(x @ W_q, x @ W_k, x @ W_v, "...ts,...sd->...td"), W_o)

    def of_weights(q: Any, k: Any, v: Any, subscripts: str = "bhtt,bhte->bhte") -> Any:
        return np.einsum(subscripts, softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5), v)

    assert attn_exp.check(of_output, quick=True).mistakes == ("projection_diagonal",)
    assert attn_exp.check(of_weights, quick=True).mistakes == ("weights_diagonal",)


def test_lengths_of_entries_are_asked_where_there_are_no_heads() -> None:
    def attention(query: Any, key: Any, value: Any, valid_len: Any = None, lost: bool = True) -> Any:
        scores = query @ key.swapaxes(1, 2) / query.shape[-1] ** 0.5
        if valid_len is not None:
            for row, length in zip(scores.copy() if lost else scores, valid_len, strict=True):
                row[:, int(length) :] = -1e6
        return softmax(scores) @ value

    verdict = attn_exp.check(attention)
    assert verdict.mistakes == ("mask_ignored",) and verdict.smallest is not None, verdict
    assert attn_exp.check(partial(attention, lost=False)).passed


def test_what_was_not_asked_is_said_with_its_reason() -> None:
    verdict = attn_exp.check(raw, quick=True)
    assert verdict.not_asked[0] == "masks (it has no word for one)"
    assert verdict.not_asked[1].startswith("fewer key/value heads (ValueError: ")
    assert "not asked: masks (it has no word for one)" in str(verdict)
