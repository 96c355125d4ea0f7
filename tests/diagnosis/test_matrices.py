"""Functions of x and of a layer's matrices: packed, transposed, and with heads of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.errors import UserError
from attn_exp.experiment.verdict import HELD
from tests.diagnosis.functions import attend, logits, merge, raw, softmax, split


def of_heads(heads: int, q: Any, k: Any, v: Any) -> Any:
    """Return the heads of attention side by side, `[... t h*d]`."""
    return merge(attend(*(split(side, heads) for side in (q, k, v))))


# Matrices as arguments


def with_biases(x: Any, c_attn_w: Any, c_attn_b: Any, c_proj_w: Any, c_proj_b: Any, n_head: int) -> Any:
    return of_heads(n_head, *np.split(x @ c_attn_w + c_attn_b, 3, -1)) @ c_proj_w + c_proj_b


def bias_twice(x: Any, c_attn_w: Any, c_attn_b: Any, c_proj_w: Any, c_proj_b: Any, n_head: int) -> Any:
    return with_biases(x, c_attn_w, c_attn_b, c_proj_w, c_proj_b, n_head) + c_proj_b


def of_three_inputs(Q: Any, K: Any, V: Any, W_q: Any, W_k: Any, W_v: Any, num_heads: int) -> Any:
    return of_heads(num_heads, Q @ W_q, K @ W_k, V @ W_v)


def values_of_queries(Q: Any, K: Any, V: Any, W_q: Any, W_k: Any, W_v: Any, num_heads: int) -> Any:
    return of_three_inputs(Q, K, Q, W_q, W_k, W_v, num_heads)


def of_one_length(Q: Any, K: Any, V: Any, W_q: Any, W_k: Any, W_v: Any, num_heads: int) -> Any:
    assert Q.shape == K.shape
    return of_three_inputs(Q, K, V, W_q, W_k, W_v, num_heads)


def turned(x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any, num_heads: int) -> Any:
    """Its matrices are `[out in]`, as nn.Linear holds them."""
    return of_heads(num_heads, x @ W_q.T, x @ W_k.T, x @ W_v.T) @ W_o.T


def turned_but_one(x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any, num_heads: int) -> Any:
    return turned(x, W_q, W_k, W_v, W_o.T, num_heads)


def turned_and_unscaled(x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any, num_heads: int) -> Any:
    return turned(x, W_q * np.sqrt(len(W_q) // num_heads), W_k, W_v, W_o, num_heads)


def shares_of_x(rate: float, x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any, num_heads: int) -> Any:
    q, k, v = (split(x @ matrix, num_heads) for matrix in (W_q, W_k, W_v))
    return merge(softmax(raw(q, k) / (x.shape[-1] // num_heads) ** rate) @ v) @ W_o


def of_shares(x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any, num_heads: int) -> Any:
    """The size of a head is x's width / heads, wherever it is needed."""
    return shares_of_x(0.5, x, W_q, W_k, W_v, W_o, num_heads)


def of_whole_shares(x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any, num_heads: int) -> Any:
    return shares_of_x(1.0, x, W_q, W_k, W_v, W_o, num_heads)


def of_a_stack(X: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any, mask: Any = None) -> Any:
    """Its matrices have heads first; of an x with entries those would be the heads."""
    scores = logits(X @ W_q, X @ W_k)
    heads = softmax(scores if mask is None else scores + mask) @ (X @ W_v)
    return np.concatenate([heads[place] for place in range(heads.shape[0])], -1) @ W_o


def weights_first(x: Any, W_q: Any, W_k: Any, W_v: Any) -> Any:
    weights = softmax(logits(x @ W_q, x @ W_k))
    return weights, weights @ (x @ W_v)


def diagonal(x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any) -> Any:
    return np.einsum("btd,dd->btd", attend(x @ W_q, x @ W_k, x @ W_v), W_o)


def rows_of_numbers(x: Any, wq: Any, wk: Any, wv: Any) -> Any:
    """Its answer is lists of numbers."""
    return [[float(number) for number in row] for row in attend(x @ wq, x @ wk, x @ wv)]


def of_a_mapping(x: Any, params: Any, n_heads: int) -> Any:
    return of_heads(n_heads, x @ params["wq"], x @ params["wk"], x @ params["wv"])


def linear(x: Any, w: Any, b: Any) -> Any:
    return x @ w + b


def of_starred_mappings(x: Any, c_attn: Any, c_proj: Any) -> Any:
    return linear(attend(*np.split(linear(x, **c_attn), 3, -1)), **c_proj)


RIGHT = [
    of_a_mapping,
    of_starred_mappings,
    with_biases,
    of_three_inputs,
    turned,
    of_shares,
    weights_first,
    rows_of_numbers,
]


@pytest.mark.parametrize("function", RIGHT)
def test_matrices_are_handed_over_as_they_are_taken(function: Callable[..., Any]) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert verdict.passed, verdict
    assert function is not of_shares or "x's width / heads" in str(verdict)


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "names"),
    [
        (turned_but_one, ("projection_transposed",)), (turned_and_unscaled, ("no_scale",)),
        (of_whole_shares, ("scale_by_d",)), (diagonal, ("projection_diagonal",)), (bias_twice, None),
        (values_of_queries, None),
    ],
)  # fmt: skip
def test_a_mistake_beside_matrices_is_found(function: Callable[..., Any], names: tuple[str, ...] | None) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert not verdict.passed and names in (None, verdict.mistakes), verdict


def test_keys_of_another_length_are_asked_where_they_are_taken() -> None:
    assert attn_exp.check(of_three_inputs, quick=True).not_asked == ("masks (it takes no mask argument)",)
    masks, lengths = attn_exp.check(of_one_length, quick=True).not_asked
    assert masks == "masks (it takes no mask argument)" and lengths.startswith("keys of a different length (Assertion")


def of_four_heads(x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any, causal_mask: Any = None) -> Any:
    """The number of heads stands in the code."""
    scores = logits(split(x @ W_q, 4), split(x @ W_k, 4))
    scores = scores if causal_mask is None else scores + np.where(causal_mask, 0.0, -1e9)[None, None]
    return merge(softmax(scores) @ split(x @ W_v, 4)).reshape(x.shape) @ W_o


def of_four_heads_and_causal(x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any) -> Any:
    return of_four_heads(x, W_q, W_k, W_v, W_o, np.tri(x.shape[-2]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "under"), [(of_four_heads, "head=4"), (of_four_heads_and_causal, "mask=causal head=4")]
)
def test_heads_in_the_code_are_found(function: Callable[..., Any], under: str) -> None:
    verdict = attn_exp.check(function)
    assert verdict.passed and verdict.right_under == under, verdict
    states = {one.question: one.state for one in verdict.findings}
    assert function is not of_four_heads or states["masks"] == HELD, verdict


def heads_of_stacks(x: Any, Wqs: Any, Wks: Any, Wvs: Any) -> Any:
    return np.concatenate([attend(x @ w_q, x @ w_k, x @ w_v) for w_q, w_k, w_v in zip(Wqs, Wks, Wvs, strict=True)], -1)


@pytest.mark.parametrize("function", [heads_of_stacks, of_a_stack])
def test_matrices_that_no_name_tells_are_not_guessed(function: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match=r"expected q, k, v, or x, W_q, W_k, W_v|do not say how"):
        attn_exp.check(function)
