"""Functions of x and of a layer's matrices: packed, turned, in a mapping, by name, and with heads of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.experiment.verdict import HELD
from tests.diagnosis.functions import attend, logits, merge, raw, softmax, split


def of_heads(heads: int, q: Any, k: Any, v: Any) -> Any:
    """Return the heads of attention side by side, `[... t h*d]`."""
    return merge(attend(*(split(side, heads) for side in (q, k, v))))


# Matrices as arguments


def one_matrix(x: Any, W: Any, NH: int, Wp: Any) -> Any:
    return of_heads(NH, *np.split(x @ W, 3, axis=-1)) @ Wp


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


def heads_of_stacks(x: Any, Wqs: Any, Wks: Any, Wvs: Any, seen: Any) -> Any:
    heads = []
    for w_q, w_k, w_v in zip(Wqs, Wks, Wvs, strict=True):
        scores = logits(x @ w_q, x @ w_k)
        heads.append(softmax(scores if seen is None else np.where(seen == 0, -np.inf, scores)) @ (x @ w_v))
    return np.concatenate(heads, -1)


def masked_by_a_switch(x: Any, Wqs: Any, Wks: Any, Wvs: Any, do_mask: bool = False) -> Any:
    """It takes `x` `[b t m]`, and `[t m]` too as long as nothing is hidden."""
    return heads_of_stacks(x, Wqs, Wks, Wvs, np.tri(x.shape[1]) if do_mask else None)


def masked_by_a_switch_too_late(x: Any, Wqs: Any, Wks: Any, Wvs: Any, do_mask: bool = False) -> Any:
    return heads_of_stacks(x, Wqs, Wks, Wvs, np.tri(x.shape[1], k=1) if do_mask else None)


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
    """The size of a head is x's width over the heads, wherever it is needed."""
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


# A mapping of them: which key is which is read off the code


def with_biases_by_name(x: Any, p: Any, n_heads: int, key: Any, rate: float, training: bool) -> Any:
    q, k, v = x @ p["wq"] + p["bq"], x @ p["wk"] + p["bk"], x @ p["wv"] + p["bv"]
    if training and rate > 0:
        raise ValueError(key)
    return of_heads(n_heads, q, k, v) @ p["wo"] + p["bo"]


def nested(params: Any, inputs: Any, num_heads: int) -> Any:
    own = params["attention"]
    q, k, v = (inputs @ one for one in (own["query"]["kernel"], own["key"]["kernel"], own["value"]["kernel"]))
    q, k, v = q + own["query"]["bias"], k + own["key"]["bias"], v + own["value"]["bias"]
    return of_heads(num_heads, q, k, v) @ own["out"]["kernel"] + own["out"]["bias"]


def of_fields(state: Any, weights: Any, heads: int) -> Any:
    return of_heads(heads, state @ weights.q_proj, state @ weights.k_proj, state @ weights.v_proj) @ weights.o_proj


def columns(weights: Any, x: Any, scale_factor: float) -> Any:
    q, k, v = weights["query_weights"] @ x, weights["key_weights"] @ x, weights["value_weights"] @ x
    context = v @ softmax(q.swapaxes(-1, -2) @ k / scale_factor).swapaxes(-1, -2)
    return weights["output_weights"] @ np.concatenate(list(context), axis=0)


def heads_between(params: Any, x: Any) -> Any:
    own = params["attn"]
    q, k, v = (np.einsum("btm,mhd->bhtd", x, one) for one in (own["q"]["w"], own["k"]["w"], own["v"]["w"]))
    return np.einsum("bhtd,hdm->btm", attend(q, k, v), own["o"]["w"])


def packed(x: Any, params: Any, n_heads: int) -> Any:
    packs = np.split(x @ params["c_attn_w"] + params["c_attn_b"], 3, axis=-1)
    return of_heads(n_heads, *packs) @ params["c_proj_w"] + params["c_proj_b"]


def four_in_a_row(x: Any, params: Any, n_heads: int) -> Any:
    w_q, w_k, w_v, last = params
    return of_heads(n_heads, x @ w_q, x @ w_k, x @ w_v) @ last


def linear(layer: Any, x: Any) -> Any:
    return x @ layer["kernel"] + layer["bias"]


def of_layers(params: Any, x: Any) -> Any:
    q, k, v = (linear(params[word], x) for word in ("W_q", "W_k", "W_v"))
    return linear(params["W_o"], of_heads(params["num_heads"], q, k, v))


def of_turned_layers(x: Any, layers: Any) -> Any:
    def apply(name: str, y: Any) -> Any:
        return y @ layers[name]["weight"].T + layers[name]["bias"]

    return apply("out_proj", attend(apply("q_proj", x), apply("k_proj", x), apply("v_proj", x)))


RIGHT = [
    one_matrix, with_biases, of_three_inputs, turned, of_shares, of_a_stack, weights_first, rows_of_numbers,
    with_biases_by_name, nested, of_fields, columns, heads_between, packed, four_in_a_row, of_layers, of_turned_layers,
]  # fmt: skip


@pytest.mark.parametrize("function", RIGHT)
def test_matrices_are_handed_over_as_they_are_taken(function: Callable[..., Any]) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert verdict.passed, verdict
    assert function is not of_shares or "x's width over the heads" in str(verdict)
    assert function is not of_a_stack or "masks added" in str(verdict)


def by_width(x: Any, p: Any, n_heads: int) -> Any:
    q, k, v = (split(side, n_heads) for side in (x @ p["wq"], x @ p["wk"], x @ p["wv"]))
    return merge(softmax(raw(q, k) / (x @ p["wq"]).shape[-1] ** 0.5) @ v) @ p["wo"]


def bias_of_a_wrong_sign(x: Any, p: Any, n_heads: int) -> Any:
    return of_heads(n_heads, x @ p["wq"] + p["bq"], x @ p["wk"] - p["bk"], x @ p["wv"] - p["bv"]) @ p["wo"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "names"),
    [
        (turned_but_one, ("projection_transposed",)), (turned_and_unscaled, ("no_scale",)),
        (of_whole_shares, ("scale_by_d",)), (by_width, ("scale_by_sqrt_d_model",)),
        (diagonal, ("projection_diagonal",)), (bias_twice, None), (values_of_queries, None),
        (bias_of_a_wrong_sign, None),
    ],
)  # fmt: skip
def test_a_mistake_beside_matrices_is_found(function: Callable[..., Any], names: tuple[str, ...] | None) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert not verdict.passed and names in (None, verdict.mistakes), verdict


def test_keys_of_another_length_are_asked_where_they_are_taken() -> None:
    assert attn_exp.check(of_three_inputs, quick=True).not_asked == ("masks (it has no word for one)",)
    masks, lengths = attn_exp.check(of_one_length, quick=True).not_asked
    assert masks == "masks (it has no word for one)" and lengths.startswith("keys of another length (AssertionError")


def test_a_switch_of_masks_makes_it_causal_and_x_has_the_axes_that_masks_need() -> None:
    right = attn_exp.check(masked_by_a_switch)
    assert right.passed and {one.rung: one.state for one in right.findings}["causal"] == HELD
    assert attn_exp.check(masked_by_a_switch_too_late).mistakes == ("causal_next",)


def of_four_heads(weights: Any, x: Any, causal_mask: Any = None) -> Any:
    """Helpers read the mapping, and the number of heads stands in the code."""
    sides = linear(weights["query"], x), linear(weights["key"], x), linear(weights["value"], x)
    q, k, v = (split(side, 4) for side in sides)
    scores = logits(q, k)
    if causal_mask is not None:
        scores = scores + np.where(causal_mask, 0.0, -1e9)[None, None]
    return linear(weights["out"], merge(softmax(scores) @ v).reshape(x.shape))


def of_four_heads_and_causal(weights: Any, x: Any) -> Any:
    return of_four_heads(weights, x, np.tri(x.shape[1]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "under"), [(of_four_heads, "head=4"), (of_four_heads_and_causal, "mask=causal head=4")]
)
def test_heads_in_the_code_are_found(function: Callable[..., Any], under: str) -> None:
    verdict = attn_exp.check(function)
    assert verdict.passed and verdict.right_under == under, verdict
    states = {one.rung: one.state for one in verdict.findings}
    assert function is not of_four_heads or states["masks"] == HELD, verdict
