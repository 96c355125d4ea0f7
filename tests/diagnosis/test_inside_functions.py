"""Functions of q, k and v with several mistakes at once, which what is seen inside a call parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.arrays import Array


def shares(logits: Array, axis: int = -1) -> Array:
    powers = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def three_at_once(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    logits = q @ k.swapaxes(-1, -2) / q.shape[-1]
    logits = logits if mask is None else np.where(mask, logits, -10.0)
    return np.asarray(shares(logits, -2) @ v)


def strict_and_unscaled(q: Array, k: Array, v: Array) -> Array:
    scores = q @ k.swapaxes(-1, -2)
    later = np.triu(np.ones(scores.shape[-2:], bool))
    return np.asarray(shares(np.where(later, -1e9, scores)) @ v)


def tiled_and_masked_late(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    k, v = (np.concatenate([side] * (q.shape[-3] // side.shape[-3]), axis=-3) for side in (k, v))
    weights = shares(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5)
    return np.asarray((weights if mask is None else np.where(mask, weights, -1e9)) @ v)


def merged_as_it_lies(q: Array, k: Array, v: Array) -> Array:
    batch, tokens, heads, size = q.shape
    q, k, v = (side.transpose(0, 2, 1, 3) for side in (q, k, v))
    return np.asarray((shares(q @ k.swapaxes(-1, -2) / size) @ v).reshape(batch, tokens, heads, size))


def spread_late(q: Array, k: Array, v: Array) -> Array:
    powers = np.exp(q @ k.T)
    return np.asarray(powers / powers.sum(axis=-1) / k.shape[-1] ** 0.5 @ v)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (three_at_once, {"mask_small_fill", "scale_by_d", "softmax_over_queries"}),
        (strict_and_unscaled, {"causal_strict", "no_scale"}),
        (tiled_and_masked_late, {"kv_heads_tiled", "mask_after_softmax"}),
        (merged_as_it_lies, {"heads_merged_wrong", "scale_by_d"}),
        (spread_late, {"keepdims_missing", "scale_after_softmax"}),
    ],
)
def test_several_mistakes_of_a_function_are_all_named(function: Callable[..., Any], names: set[str]) -> None:
    assert set(attn_exp.check(function, quick=True).mistakes) == names


def wrong_with_a_scale(q: Array, k: Array, v: Array, scale: float | None = None) -> Array:
    scores = q @ k.swapaxes(-1, -2)
    return np.asarray((shares(scores) if scale is None else shares(scores * scale, -2)) @ v)


def wrong_with_a_mask(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    logits = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    if mask is None:
        return np.asarray(shares(logits, -2) @ v)
    return np.asarray(shares(np.where(mask.swapaxes(-1, -2), logits, -np.inf)) @ v)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (wrong_with_a_scale, {"no_scale", "softmax_over_queries"}),
        (wrong_with_a_mask, {"mask_transposed", "softmax_over_queries"}),
    ],
)
def test_a_word_hides_no_mistake_that_is_there_without_it(function: Callable[..., Any], names: set[str]) -> None:
    assert set(attn_exp.check(function, quick=True).mistakes) == names


def masks_are_added(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    scores = q @ k.swapaxes(-1, -2)
    return np.asarray(shares(scores if mask is None else scores + mask, -2) @ v)


def test_no_mistake_of_a_mask_is_named_that_is_written_otherwise() -> None:
    assert set(attn_exp.check(masks_are_added, quick=True).mistakes) == {"no_scale", "softmax_over_queries"}


def squares_of_values(q: Array, k: Array, v: Array) -> Array:
    return np.asarray(shares(q @ k.swapaxes(-1, -2)) @ (v * v))


def test_what_has_no_name_lies_at_the_first_stage_that_differs() -> None:
    verdict = attn_exp.check(squares_of_values, quick=True)
    assert (verdict.mistakes, verdict.stage) == ((), "logits")


def keys_of_x(x: Array, Wq: Array, Wk: Array, Wv: Array, encoder_out: Array | None = None) -> Array:
    rows = x if encoder_out is None else encoder_out
    return np.asarray(shares(x @ Wq @ (x @ Wk).swapaxes(-1, -2) * Wq.shape[1] ** -0.5) @ (rows @ Wv))


def before_x(x: Array, Wq: Array, Wk: Array, Wv: Array, prefix: Array | None = None) -> Array:
    rows = x if prefix is None else np.concatenate([prefix, x], axis=-2)
    return np.asarray(shares(x @ Wq @ (rows @ Wk).swapaxes(-1, -2) * Wq.shape[1] ** -0.5) @ (rows @ Wv))


def test_another_input_is_asked_for_by_any_name() -> None:
    assert attn_exp.check(keys_of_x, quick=True).mistakes == ("keys_from_queries",)
    assert attn_exp.check(before_x, quick=True).passed  # keys beside those of x are no other input
