"""Functions whose other arguments nobody knows: they are layers, and the shapes of their arrays are found by trying."""

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


def in_steps(token: Any, K_cache: Any, V_cache: Any, W_q: Any, W_k: Any, W_v: Any) -> Any:
    K_cache, V_cache = np.vstack([K_cache, token @ W_k]), np.vstack([V_cache, token @ W_v])
    weights = softmax(K_cache @ (token @ W_q) / np.sqrt(K_cache.shape[1]))
    return weights @ V_cache, K_cache, V_cache


def in_steps_unscaled(x_t: Any, cache: Any, params: Any, n_heads: int) -> Any:
    """The mapping is changed where it lies."""
    q, k, v = ((x_t @ params[word]).reshape(n_heads, -1) for word in ("q", "k", "v"))
    cache["k"], cache["v"] = [*cache.get("k", []), k], [*cache.get("v", []), v]
    scores = np.einsum("hd,shd->hs", q, np.stack(cache["k"]))
    return np.einsum("hs,shd->hd", softmax(scores), np.stack(cache["v"])).reshape(-1) @ params["out"]


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


def a_mapping_for_each_head(x: Any, heads: Any, W_out: Any) -> Any:
    sides = [[x @ head[word] for word in ("Wq", "Wk", "Wv")] for head in heads]
    said = [softmax(q @ k.T / np.sqrt(q.shape[-1])) @ v for q, k, v in sides]
    return np.concatenate(said, -1) @ W_out


def with_a_table_of_places(x: Any, pos_enc: Any, Wq: Any, Wk: Any, Wv: Any) -> Any:
    x = x + pos_enc[: len(x)]
    return softmax((x @ Wq) @ (x @ Wk).T / np.sqrt(Wq.shape[1])) @ (x @ Wv)


def of_two_mappings(X: Any, W: Any, b: Any, num_heads: int = 2) -> Any:
    """Biases by the names of their matrices: a vector for one would fit too."""
    q, k, v = (np.stack(np.split(X @ W[side] + b[side], num_heads, -1)) for side in "qkv")
    context = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
    return np.concatenate(list(context), -1) @ W["o"] + b["o"]


OF_FUNCTIONS = [
    with_a_table_of_places, of_two_mappings,
    block, in_columns, lists_of_heads, of_its_file, made, rows_of_numbers, rows_one_by_one, tokens_before_entries,
    a_mapping_for_each_head,
]  # fmt: skip


@pytest.mark.parametrize("function", OF_FUNCTIONS)
def test_what_a_function_holds_is_found_by_what_it_does(function: Callable[..., Any]) -> None:
    before = np.array(TABLE)
    verdict = attn_exp.check(function, quick=True)
    assert verdict.passed, str(verdict)
    assert np.array_equal(TABLE, before)
    assert (entries, words, heads) == (16, 32, 4)


@pytest.mark.parametrize(
    ("function", "name"),
    [(block_scaled_by_all, "scale_by_sqrt_d_model"), (in_columns_over_rows, "softmax_over_queries"),
     (in_steps_unscaled, "no_scale"), (lists_of_heads_by_view, "heads_not_transposed"),
     (of_its_file_turned, "weights_transposed")],
)  # fmt: skip
def test_mistakes_of_such_functions_are_named(function: Callable[..., Any], name: str) -> None:
    assert attn_exp.check(function, quick=True).mistakes == (name,)


def test_a_step_with_a_cache_is_attention_that_looks_back() -> None:
    verdict = attn_exp.check(in_steps, quick=True)
    assert verdict.right_under == "mask=causal" and "with what those before it left" in str(verdict), str(verdict)
    assert attn_exp.check(in_steps, "mask=causal", quick=True).passed


def of_one_query(query: Any, keys: Any, values: Any, mask: Any = None) -> Any:
    scores = keys @ query / np.sqrt(len(query))
    return softmax(scores if mask is None else np.where(mask, scores, -np.inf)) @ values


def of_one_query_of_heads(q: Any, k_cache: Any, v_cache: Any) -> Any:
    scores = np.einsum("hd,shd->hs", q, k_cache) / np.sqrt(q.shape[-1])
    return np.einsum("hs,shd->hd", softmax(scores, 0), v_cache)


def test_one_query_may_be_a_call() -> None:
    assert attn_exp.check(of_one_query, quick=True).passed
    assert attn_exp.check(of_one_query_of_heads, quick=True).mistakes == ("softmax_over_heads",)


def of_one_token(q: Any, k: Any, v: Any, past: Any = None) -> Any:
    if past is not None:
        k, v = (np.concatenate(both, 2) for both in zip(past, (k, v), strict=True))
    assert q.shape[2] == 1
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v, (k, v)


def of_one_token_unscaled(q: Any, k: Any, v: Any, cache: dict[str, Any]) -> Any:
    for name, side in (("k", k), ("v", v)):
        cache[name] = [*cache.get(name, []), side]
    return softmax(np.stack(cache["k"]) @ q) @ np.stack(cache["v"])


def test_queries_keys_and_values_of_one_token_may_be_a_call() -> None:
    assert attn_exp.check(of_one_token, quick=True).right_under == "mask=causal"
    assert attn_exp.check(of_one_token_unscaled, quick=True).mistakes == ("no_scale",)


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


class OfMatrices(torch.nn.Module):  # type: ignore[misc] # torch may be missing
    def __init__(self, Wk: Any, Wq: Any, Wv: Any, Wmerge: Any, emb: int, heads: int = 8) -> None:
        super().__init__()
        self.sides = torch.nn.ParameterList([Wq, Wk, Wv])
        self.merge = torch.nn.Linear(emb, emb, bias=False)
        assert self.merge.weight.shape == Wmerge.shape
        self.merge.weight = torch.nn.Parameter(Wmerge)
        self.heads = heads

    def forward(self, x: Any) -> Any:
        q, k, v = ((x @ side).unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in self.sides)
        said = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.merge(said.transpose(1, 2).flatten(-2))


class OfStates(torch.nn.Module):  # type: ignore[misc] # as above
    """One query beside states that are keys and values, of which some are filler."""

    def forward(self, hidden: Any, states: Any, src_lens: Any) -> Any:
        scores = torch.einsum("bd,bsd->bs", hidden, states)
        filler = torch.arange(states.shape[1]) >= src_lens[:, None]
        weights = scores.masked_fill(filler, -1e9).softmax(-1)
        return torch.einsum("bs,bsd->bd", weights, states), weights


to_q, to_k, to_v = (torch.nn.Linear(12, 12, bias=False) for _ in range(3))


def with_layers_above(x: Any) -> Any:
    return torch.softmax(to_q(x) @ to_k(x).mT / 12**0.5, -1) @ to_v(x)


def test_layers_of_a_file_are_those_of_a_function() -> None:
    assert attn_exp.check(with_layers_above, quick=True).passed


def test_a_class_may_be_made_of_matrices() -> None:
    assert attn_exp.check(OfMatrices, quick=True).passed


def test_a_query_beside_states_is_not_scaled() -> None:
    assert attn_exp.check(OfStates, quick=True).right_under == "scale=1"


@pytest.mark.parametrize(
    ("name", "side"), [("fc_q", "W_q"), ("to_keys", "W_k"), ("v_net", "W_v"), ("to_qkv", "W_qkv"), ("fc", "W")]
)
def test_words_for_layers_stand_around_the_side_that_a_matrix_makes(name: str, side: str) -> None:
    assert side_of_name(name) == side
