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


def of_one_query(query: Any, keys: Any, values: Any, mask: Any = None) -> Any:
    scores = keys @ query / np.sqrt(len(query))
    return softmax(scores if mask is None else np.where(mask, scores, -np.inf)) @ values


def of_one_query_of_heads(q: Any, k_cache: Any, v_cache: Any) -> Any:
    scores = np.einsum("hd,shd->hs", q, k_cache) / np.sqrt(q.shape[-1])
    return np.einsum("hs,shd->hd", softmax(scores, 0), v_cache)


def test_one_query_may_be_a_call() -> None:
    assert attn_exp.check(of_one_query, quick=True).passed
    assert attn_exp.check(of_one_query_of_heads, quick=True).mistakes == ("softmax_over_heads",)


batch_size, n_head, seq_len, head_dim = 4, 2, 16, 32


def of_sizes_above(Q: Any, K: Any, V: Any) -> Any:
    out = np.zeros((batch_size, n_head, seq_len, head_dim))
    for entry in range(batch_size):
        for head in range(n_head):
            scores = Q[entry, head] @ K[entry, head].T / np.sqrt(head_dim)
            out[entry, head] = softmax(scores) @ V[entry, head]
    return out


def test_sizes_of_a_file_are_those_of_a_call() -> None:
    verdict = attn_exp.check(of_sizes_above, quick=True)
    assert verdict.passed and "[b h t d]" in str(verdict), str(verdict)
    assert (batch_size, n_head, seq_len, head_dim) == (4, 2, 16, 32)


T, d, h = 4, 8, 2
d_head = d // h


def of_short_sizes_above(x: Any, Wq: Any, Wk: Any, Wv: Any, Wo: Any, mask: Any) -> Any:
    q, k, v = ((x @ W).reshape(T, h, d_head).transpose(1, 0, 2) for W in (Wq, Wk, Wv))
    mixed = softmax(q @ k.transpose(0, 2, 1) / np.sqrt(d_head) + mask) @ v
    return mixed.transpose(1, 0, 2).reshape(T, d) @ Wo


def test_a_width_is_told_from_the_size_of_a_head_by_their_numbers() -> None:
    verdict = attn_exp.check(of_short_sizes_above, quick=True)
    assert verdict.passed, str(verdict)
    assert (T, d, h, d_head) == (4, 8, 2, 4)


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
