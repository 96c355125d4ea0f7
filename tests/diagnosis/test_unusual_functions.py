"""Functions whose tokens, answers or queries come in unusual shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.diagnosis.asking.sides import side_of_name


def softmax(scores: Any, axis: int = -1) -> Any:
    powers = np.exp(scores - scores.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def cut(array: Any, count: int) -> Any:
    """Return `[b t h*d]` as `[b h t d]`."""
    return array.reshape(*array.shape[:2], count, -1).swapaxes(1, 2)


def joined(array: Any) -> Any:
    """Return `[b h t d]` as `[b t h*d]`."""
    return array.swapaxes(1, 2).reshape(array.shape[0], array.shape[2], -1)


def normed(x: Any, gain: Any = 1.0, shift: Any = 0.0) -> Any:
    return gain * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) + shift


def block(  # noqa: PLR0913, PLR0917 - people write such
    x: Any, Wq: Any, Wk: Any, Wv: Any, Wo: Any, up: Any, down: Any, gamma: Any, beta: Any, num_heads: int
) -> Any:  # fmt: skip
    z = normed(x, gamma, beta)
    q, k, v = (cut(z @ matrix, num_heads) for matrix in (Wq, Wk, Wv))
    x = x + joined(softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v) @ Wo
    return x + np.tanh(normed(x) @ up) @ down


entries, words, heads = 16, 32, 4


def made(d_model: int, n_heads: int) -> Callable[..., Any]:
    matrices = np.random.default_rng(7).standard_normal((4, d_model, d_model)) / np.sqrt(d_model)

    def attend(x: Any, mask: Any = None) -> Any:
        q, k, v = (cut(x @ matrix, n_heads) for matrix in matrices[:3])
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(d_model // n_heads)
        scores = scores if mask is None else np.where(mask, scores, -1e9)
        return joined(softmax(scores) @ v) @ matrices[3]

    return attend


def rows_of_numbers(x: Any, wq: Any, wk: Any, wv: Any) -> Any:
    """Its answer is lists of numbers."""
    q, k, v = x @ wq, x @ wk, x @ wv
    return [[float(number) for number in softmax(row @ k.T / np.sqrt(len(row))) @ v] for row in q]


def rows_one_by_one(q: Any, k: Any, v: Any) -> Any:
    for row in q:
        yield softmax(row @ k.T / np.sqrt(len(row))) @ v


def tokens_before_entries(x: Any, W_q: Any, W_k: Any, W_v: Any) -> Any:
    q, k, v = x @ W_q, x @ W_k, x @ W_v
    scores = np.einsum("tbd,sbd->bts", q, k) / np.sqrt(q.shape[-1])
    return np.einsum("bts,sbd->tbd", softmax(scores), v)


OF_FUNCTIONS = [
    rows_of_numbers, rows_one_by_one, tokens_before_entries,
]  # fmt: skip


@pytest.mark.parametrize("function", OF_FUNCTIONS)
def test_tokens_and_answers_may_lie_otherwise(function: Callable[..., Any]) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert verdict.passed, str(verdict)


torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")


@pytest.mark.parametrize(
    ("name", "side"), [("fc_q", "W_q"), ("to_keys", "W_k"), ("v_net", "W_v"), ("to_qkv", "W_qkv"), ("fc", "W")]
)
def test_words_for_layers_stand_around_the_side_that_a_matrix_makes(name: str, side: str) -> None:
    assert side_of_name(name) == side


def of_a_switch(q: Any, k: Any, v: Any, mask: bool = False) -> Any:
    """`mask` is no array, but the word for causal."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(np.where(np.tri(*scores.shape[-2:]) == 0, -1e9, scores) if mask else scores) @ v


def of_a_default(q: Any, k: Any, v: Any, d_k: int = 512) -> Any:
    """The default is not the size of a head."""
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(d_k)) @ v


def of_a_dropout_mask(q: Any, k: Any, v: Any, dropout_mask: Any = None) -> Any:
    weights = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return (weights if dropout_mask is None else np.where(dropout_mask, weights, 0.0)) @ v


@pytest.mark.parametrize("function", [of_a_switch, of_a_default, of_a_dropout_mask])
def test_words_that_mean_something_else_hinder_nobody(function: Any) -> None:
    verdict = attn_exp.check(function)
    assert verdict.passed and not verdict.right_under, verdict
