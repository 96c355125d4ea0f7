"""Functions whose other arguments nobody knows: they are layers, and the shapes of their arrays are found by trying."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attn_exp


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


def block_scaled_by_all(x: Any, Wq: Any, Wk: Any, Wv: Any, Wo: Any, gamma: Any, num_heads: int) -> Any:
    z = normed(x, gamma)
    q, k, v = (cut(z @ matrix, num_heads) for matrix in (Wq, Wk, Wv))
    return x + joined(softmax(q @ k.swapaxes(-1, -2) / np.sqrt(x.shape[-1])) @ v) @ Wo


def in_columns(X: Any, Wk: Any, Wq: Any, Wv: Any, Bk: Any, Bq: Any, Bv: Any) -> Any:
    q, k, v = Wq @ X + Bq, Wk @ X + Bk, Wv @ X + Bv
    return v @ softmax(k.T @ q / np.sqrt(len(k)), 0)


def in_columns_over_rows(X: Any, Wk: Any, Wq: Any, Wv: Any, Bk: Any, Bq: Any, Bv: Any) -> Any:
    q, k, v = Wq @ X + Bq, Wk @ X + Bk, Wv @ X + Bv
    return v @ softmax(k.T @ q / np.sqrt(len(k)), 1)


entries, words, heads = 16, 32, 4


def lists_of_heads(stream: Any, Wq: Any, Wv: Any, Wk: Any, Wo: Any) -> Any:
    q, k, v = (cut(stream @ np.concatenate(lists, 1), heads) for lists in (Wq, Wk, Wv))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    context = softmax(scores) @ v
    return stream + context.swapaxes(1, 2).reshape(len(stream), words, -1) @ Wo


def lists_of_heads_by_view(stream: Any, Wq: Any, Wv: Any, Wk: Any, Wo: Any) -> Any:
    q, k, v = (np.reshape(stream @ np.concatenate(lists, 1), (len(stream), heads, words, -1)) for lists in (Wq, Wk, Wv))
    context = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
    return stream + context.reshape(len(stream), words, -1) @ Wo


WIDTH = 16
TABLE = np.random.default_rng(5).standard_normal((4, WIDTH, WIDTH)) / 4


def of_its_file(embeddings: Any) -> Any:
    q, k, v = (embeddings @ matrix for matrix in TABLE[:3])
    return softmax(q @ k.T / np.sqrt(WIDTH)) @ v


def of_its_file_turned(embeddings: Any) -> Any:
    q, k, v = (embeddings @ matrix for matrix in TABLE[:3])
    return softmax(q @ k.T / np.sqrt(WIDTH)).T @ v


def made(d_model: int, n_heads: int) -> Callable[..., Any]:
    matrices = np.random.default_rng(7).standard_normal((4, d_model, d_model)) / np.sqrt(d_model)

    def attend(x: Any, mask: Any = None) -> Any:
        q, k, v = (cut(x @ matrix, n_heads) for matrix in matrices[:3])
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(d_model // n_heads)
        scores = scores if mask is None else np.where(mask, scores, -1e9)
        return joined(softmax(scores) @ v) @ matrices[3]

    return attend


@pytest.mark.parametrize("function", [block, in_columns, lists_of_heads, of_its_file, made])
def test_what_a_function_holds_is_found_by_what_it_does(function: Callable[..., Any]) -> None:
    before = np.array(TABLE)
    verdict = attn_exp.check(function, quick=True)
    assert verdict.passed, str(verdict)
    assert np.array_equal(TABLE, before)
    assert (entries, words, heads) == (16, 32, 4)


@pytest.mark.parametrize(
    ("function", "name"),
    [(block_scaled_by_all, "scale_by_sqrt_d_model"), (in_columns_over_rows, "softmax_over_queries"),
     (lists_of_heads_by_view, "heads_not_transposed"), (of_its_file_turned, "weights_transposed")],
)  # fmt: skip
def test_mistakes_of_such_functions_are_named(function: Callable[..., Any], name: str) -> None:
    assert attn_exp.check(function, quick=True).mistakes == (name,)
