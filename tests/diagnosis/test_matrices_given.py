"""Functions of x and of a layer's matrices, and classes that are made of them: packed, turned, by name, as layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.experiment.verdict import HELD


def softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def attend(heads: int, q: Any, k: Any, v: Any) -> Any:
    """Return the heads of attention side by side, `[t h*d]`."""
    q, k, v = (np.stack(np.split(side, heads, -1)) for side in (q, k, v))
    return np.concatenate(list(softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v), -1)


def with_biases(x: Any, c_attn_w: Any, c_attn_b: Any, c_proj_w: Any, c_proj_b: Any, n_head: int) -> Any:
    return attend(n_head, *np.split(x @ c_attn_w + c_attn_b, 3, -1)) @ c_proj_w + c_proj_b


def bias_twice(x: Any, c_attn_w: Any, c_attn_b: Any, c_proj_w: Any, c_proj_b: Any, n_head: int) -> Any:
    return with_biases(x, c_attn_w, c_attn_b, c_proj_w, c_proj_b, n_head) + c_proj_b


def of_three_inputs(Q: Any, K: Any, V: Any, W_q: Any, W_k: Any, W_v: Any, num_heads: int) -> Any:
    said = [attend(num_heads, q @ W_q, k @ W_k, v @ W_v) for q, k, v in zip(Q, K, V, strict=True)]
    return np.stack(said)


def values_of_queries(Q: Any, K: Any, V: Any, W_q: Any, W_k: Any, W_v: Any, num_heads: int) -> Any:
    return of_three_inputs(Q, K, Q, W_q, W_k, W_v, num_heads)


def linear(params: Any, x: Any) -> Any:
    return x @ params["kernel"] + params["bias"]


def of_layers_by_name(params: Any, x: Any) -> Any:
    sides = (linear(params[word], x) for word in ("W_q", "W_k", "W_v"))
    return linear(params["W_o"], attend(params["num_heads"], *sides))


def of_four_in_a_row(x: Any, params: Any, n_heads: int) -> Any:
    w_q, w_k, w_v, last = params
    return attend(n_heads, x @ w_q, x @ w_k, x @ w_v) @ last


@pytest.mark.parametrize(
    "one", [with_biases, of_three_inputs, of_layers_by_name, of_four_in_a_row], ids=lambda one: one.__name__
)
def test_matrices_are_handed_over_as_they_are_taken(one: Callable[..., Any]) -> None:
    verdict = attn_exp.check(one, quick=True)
    assert verdict.passed, verdict


@pytest.mark.long
def test_a_bias_is_asked_and_so_is_another_input_of_values() -> None:
    assert not attn_exp.check(bias_twice, quick=True).passed
    assert attn_exp.check(of_three_inputs, quick=True).not_asked == ("masks (it has no word for one)",)
    assert not attn_exp.check(values_of_queries, quick=True).passed


def test_as_many_keys_as_queries_are_asked_where_no_other_number_is_taken() -> None:
    def of_one_length(Q: Any, K: Any, V: Any, W_q: Any, W_k: Any, W_v: Any, num_heads: int) -> Any:
        assert Q.shape == K.shape
        return of_three_inputs(Q, K, V, W_q, W_k, W_v, num_heads)

    masks, lengths = attn_exp.check(of_one_length, quick=True).not_asked
    assert masks == "masks (it has no word for one)" and lengths.startswith("keys of another length (AssertionError")


def of_four(x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any, num_heads: int, mask: Any = None) -> Any:
    """Return heads that are shares of the width of x; matrices are `[out in]`, as nn.Linear holds them."""
    q, k, v = (x @ matrix.T for matrix in (W_q, W_k, W_v))
    size, outs = x.shape[-1] // num_heads, []
    for head in range(num_heads):
        own = slice(head * size, (head + 1) * size)
        scores = q[..., own] @ k[..., own].swapaxes(-1, -2) / np.sqrt(size)
        outs.append(softmax(scores if mask is None else np.where(mask, scores, -np.inf)) @ v[..., own])
    return np.concatenate(outs, -1) @ W_o.T


def of_four_unscaled(x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any, num_heads: int) -> Any:
    q = x @ W_q.T * np.sqrt(len(W_q) // num_heads)
    return attend(num_heads, q, x @ W_k.T, x @ W_v.T) @ W_o.T


def of_a_mapping(x: Any, p: Any, num_heads: int) -> Any:
    return of_four_unscaled(x, p["W_q"], p["W_k"], p["W_v"], p["W_o"], num_heads)


def of_three_shares(x: Any, W_q: Any, W_k: Any, W_v: Any, num_heads: int) -> Any:
    size = x.shape[-1] // num_heads
    parts = ([(x @ one)[..., i * size : (i + 1) * size] for i in range(num_heads)] for one in (W_q, W_k, W_v))
    return np.concatenate([attend(1, *three) for three in zip(*parts, strict=True)], -1)


def turned_but_one(x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any, num_heads: int) -> Any:
    return attend(num_heads, x @ W_q.T, x @ W_k.T, x @ W_v.T) @ W_o


def test_four_matrices_that_are_all_turned_are_those_of_linear_layers() -> None:
    assert attn_exp.check(of_four, quick=True).passed
    assert attn_exp.check(turned_but_one, quick=True).mistakes == ("projection_transposed",)


@pytest.mark.parametrize("one", [of_four_unscaled, of_a_mapping], ids=lambda one: one.__name__)
def test_a_mistake_beside_matrices_that_are_all_turned_is_named_alone(one: Callable[..., Any]) -> None:
    assert attn_exp.check(one, quick=True).mistakes == ("no_scale",)


def test_heads_that_are_shares_of_the_width_of_x_are_no_mistake() -> None:
    assert attn_exp.check(of_three_shares, quick=True).passed


def of_shares_of_x(x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any, num_heads: int, rate: float = 0.5) -> Any:
    """The size of a head is x's width over the heads, wherever it is needed."""
    size = x.shape[-1] // num_heads
    sides = (np.stack(np.split(x @ matrix, num_heads, -1)) for matrix in (W_q, W_k, W_v))
    q, k, v = sides
    return np.concatenate(list(softmax(q @ k.swapaxes(-1, -2) / size**rate) @ v), -1) @ W_o


def of_whole_shares(x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any, num_heads: int) -> Any:
    return of_shares_of_x(x, W_q, W_k, W_v, W_o, num_heads, rate=1.0)


def test_the_size_of_a_head_may_be_a_share_of_x() -> None:
    verdict = attn_exp.check(of_shares_of_x, quick=True)
    assert not verdict.is_wrong, verdict
    assert "x's width over the heads" in str(verdict)


@pytest.mark.long
def test_a_wrong_scale_of_such_a_size_is_none() -> None:
    assert attn_exp.check(of_whole_shares, quick=True).mistakes == ("scale_by_d",)


def of_a_stack(X: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any, mask: Any = None) -> Any:
    """Its matrices have heads first; of an x with entries those would be the heads."""
    q, k, v = X @ W_q, X @ W_k, X @ W_v
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    heads = softmax(scores if mask is None else scores + mask) @ v
    return np.concatenate([heads[place] for place in range(heads.shape[0])], -1) @ W_o


def test_what_has_an_axis_too_few_may_take_a_stack_of_matrices() -> None:
    verdict = attn_exp.check(of_a_stack, quick=True)
    assert verdict.passed and "masks added" in str(verdict), verdict


def masked_by_a_switch(x: Any, Wqs: Any, Wks: Any, Wvs: Any, do_mask: bool = False) -> Any:
    """It takes `x` `[b t m]`, and `[t m]` too as long as nothing is hidden."""
    heads, seen = [], np.tril(np.ones((x.shape[1],) * 2))
    for w_q, w_k, w_v in zip(Wqs, Wks, Wvs, strict=True):
        scores = x @ w_q @ (x @ w_k).swapaxes(-1, -2) / w_q.shape[-1] ** 0.5
        heads.append(softmax(np.where(seen == 0, -np.inf, scores) if do_mask else scores) @ (x @ w_v))
    return np.concatenate(heads, -1)


def masked_by_a_switch_too_late(x: Any, Wqs: Any, Wks: Any, Wvs: Any, do_mask: bool = False) -> Any:
    heads, seen = [], np.tril(np.ones((x.shape[1],) * 2), 1)
    for w_q, w_k, w_v in zip(Wqs, Wks, Wvs, strict=True):
        scores = x @ w_q @ (x @ w_k).swapaxes(-1, -2) / w_q.shape[-1] ** 0.5
        heads.append(softmax(np.where(seen == 0, -np.inf, scores) if do_mask else scores) @ (x @ w_v))
    return np.concatenate(heads, -1)


def test_a_switch_of_masks_makes_it_causal_and_x_has_the_axes_that_masks_need() -> None:
    right = attn_exp.check(masked_by_a_switch)
    assert right.passed and {one.rung: one.state for one in right.findings}["causal"] == HELD
    assert attn_exp.check(masked_by_a_switch_too_late).mistakes == ("causal_next",)


def weights_first(x: Any, W_q: Any, W_k: Any, W_v: Any) -> Any:
    weights = softmax(x @ W_q @ (x @ W_k).swapaxes(-1, -2) / W_k.shape[-1] ** 0.5)
    return weights, weights @ (x @ W_v)


def unscaled_weights_first(x: Any, W_q: Any, W_k: Any, W_v: Any) -> Any:
    weights = softmax(x @ W_q @ (x @ W_k).swapaxes(-1, -2))
    return weights, weights @ (x @ W_v)


def test_weights_that_are_returned_first_are_not_taken_for_the_answer() -> None:
    assert attn_exp.check(weights_first, quick=True).passed
    assert attn_exp.check(unscaled_weights_first, quick=True).mistakes == ("no_scale",)
