"""Functions that write their answer to an array they are given, and what else they are told of its sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp


def shares(scores: Any, axis: int = -1) -> Any:
    powers = np.exp(scores - scores.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def written(Q: Any, K: Any, V: Any, output: Any, M: int, N: int, d: int) -> None:
    assert Q.shape == output.shape == (M, d)
    assert len(K) == N
    output[:] = shares(Q @ K.T / d**0.5) @ V


def written_wrongly(Q: Any, K: Any, V: Any, output: Any, M: int, N: int, d: int) -> None:
    assert len(Q) == M
    np.matmul(shares(Q @ K.T / d**0.5, 0), V, out=output)


def causal_of_rows(Q: Any, K: Any, V: Any, M: int, d: int) -> Any:
    """With one row alone its mask would hide nothing, and fit."""
    return shares(np.where(np.tri(M, dtype=bool), Q @ K.T / d**0.5, -np.inf)) @ V


@pytest.mark.long
def test_an_answer_may_be_written_to_an_array() -> None:
    assert attn_exp.check(written).passed
    assert attn_exp.check(written_wrongly).mistakes == ("softmax_over_queries",)


def test_a_number_of_rows_is_that_of_the_queries() -> None:
    assert attn_exp.check(causal_of_rows, "mask=causal").passed


def by_edges(q: Any, k: Any, v: Any, adj_matrix: Any, scale: float | None = None) -> Any:
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    with np.errstate(invalid="ignore"):
        return shares(np.where(adj_matrix > 0, scores, -np.inf)) @ v


def test_the_adjacency_of_a_graph_is_a_mask() -> None:
    verdict = attn_exp.check(by_edges)
    assert verdict.passed
    assert any(one.rung == "masks" and one.state == "held" for one in verdict.findings)


class OfWidth:
    """It holds a width and counts no heads."""

    def __init__(self, d_model: int, vocab_size: int) -> None:
        self.d_model = d_model
        self.W_out = np.ones((d_model, vocab_size))

    def attention(self, Q: Any, K: Any, V: Any) -> Any:
        scores = Q @ K.T / np.sqrt(self.d_model)
        return shares(scores) @ V, scores


def test_a_width_without_heads_is_that_of_one_head() -> None:
    assert attn_exp.check(OfWidth.attention).passed
    assert attn_exp.check(OfWidth(16, 5).attention).passed


class Documented:
    """What takes a width (Standard Master)."""

    def __init__(self, d_model: int = 512) -> None:
        self.W_q, self.W_k, self.W_v = (
            np.random.default_rng(seed).normal(size=(d_model, d_model)) for seed in (1, 2, 3)
        )

    def calculate_attention(self, x: Any) -> Any:
        scores = x @ self.W_q @ (x @ self.W_k).T / self.W_k.shape[1] ** 0.5
        return shares(scores) @ (x @ self.W_v)


def test_a_remark_in_brackets_is_no_signature() -> None:
    assert attn_exp.check(Documented).passed


def one_after_the_other(q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int) -> Any:
    """Texts of several lengths, tokens first: `[t h d]`."""
    said = []
    for first, last, start, end in zip(cu_seqlens_q, cu_seqlens_q[1:], cu_seqlens_k, cu_seqlens_k[1:], strict=False):
        assert last - first <= max_seqlen_q
        scores = np.einsum("thd,shd->hts", q[first:last], k[start:end]) / q.shape[-1] ** 0.5
        said.append(np.einsum("hts,shd->thd", shares(scores), v[start:end]))
    return np.concatenate(said)


def unscaled(q: Any, k: Any, v: Any, cu_seqlens: Any) -> Any:
    return one_after_the_other(q, k * q.shape[-1] ** 0.5, v, cu_seqlens, cu_seqlens, 1000)


def test_texts_that_lie_one_after_the_other_are_one_text() -> None:
    assert attn_exp.check(one_after_the_other).passed
    assert attn_exp.check(unscaled).mistakes == ("no_scale",)
