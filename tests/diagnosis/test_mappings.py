"""Functions of x and a mapping of matrices: which key is which is read off the code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp


def shares(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def cut(array: Any, heads: int) -> Any:
    return array.reshape(*array.shape[:-1], heads, -1).swapaxes(-2, -3)


def mixed(q: Any, k: Any, v: Any, heads: int, root: float) -> Any:
    q, k, v = cut(q, heads), cut(k, heads), cut(v, heads)
    context = shares(q @ k.swapaxes(-1, -2) / root) @ v
    return context.swapaxes(-2, -3).reshape(*context.shape[:-3], context.shape[-2], -1)


def with_biases(x: Any, p: Any, n_heads: int, key: Any, rate: float, training: bool) -> Any:
    q, k, v = x @ p["wq"] + p["bq"], x @ p["wk"] + p["bk"], x @ p["wv"] + p["bv"]
    if training and rate > 0:
        raise ValueError(key)
    return mixed(q, k, v, n_heads, (q.shape[-1] / n_heads) ** 0.5) @ p["wo"] + p["bo"]


def nested(params: Any, inputs: Any, num_heads: int) -> Any:
    own = params["attention"]
    q, k, v = (inputs @ one for one in (own["query"]["kernel"], own["key"]["kernel"], own["value"]["kernel"]))
    q, k, v = q + own["query"]["bias"], k + own["key"]["bias"], v + own["value"]["bias"]
    mixing = mixed(q, k, v, num_heads, (q.shape[-1] / num_heads) ** 0.5)
    return mixing @ own["out"]["kernel"] + own["out"]["bias"]


def in_place(params: Any, inputs: Any, num_heads: int) -> Any:
    q = inputs @ params["attention"]["query"]["w"]
    k = inputs @ params["attention"]["key"]["w"]
    v = inputs @ params["attention"]["value"]["w"]
    return mixed(q, k, v, num_heads, (q.shape[-1] / num_heads) ** 0.5) @ params["attention"]["output"]["w"]


def of_fields(state: Any, weights: Any, heads: int) -> Any:
    q, k, v = state @ weights.q_proj, state @ weights.k_proj, state @ weights.v_proj
    return mixed(q, k, v, heads, (q.shape[-1] / heads) ** 0.5) @ weights.o_proj


def columns(weights: Any, x: Any, scale_factor: float) -> Any:
    q, k, v = weights["query_weights"] @ x, weights["key_weights"] @ x, weights["value_weights"] @ x
    made = v @ shares(q.swapaxes(-1, -2) @ k / scale_factor).swapaxes(-1, -2)
    return weights["output_weights"] @ np.concatenate(list(made), axis=0)


def heads_between(params: Any, x: Any) -> Any:
    own = params["attn"]
    q, k, v = (np.einsum("btm,mhd->bhtd", x, one) for one in (own["q"]["w"], own["k"]["w"], own["v"]["w"]))
    weights = shares(np.einsum("bhtd,bhsd->bhts", q, k) / q.shape[-1] ** 0.5)
    return np.einsum("bhts,bhsd,hdm->btm", weights, v, own["o"]["w"])


def packed(x: Any, params: Any, n_heads: int) -> Any:
    q, k, v = np.split(x @ params["c_attn_w"] + params["c_attn_b"], 3, axis=-1)
    return mixed(q, k, v, n_heads, (q.shape[-1] / n_heads) ** 0.5) @ params["c_proj_w"] + params["c_proj_b"]


def by_width(x: Any, p: Any, n_heads: int) -> Any:
    q, k, v = x @ p["wq"], x @ p["wk"], x @ p["wv"]
    return mixed(q, k, v, n_heads, q.shape[-1] ** 0.5) @ p["wo"]


def without_bias_of_keys(x: Any, p: Any, n_heads: int) -> Any:
    q, k, v = x @ p["wq"] + p["bq"], x @ p["wk"] - p["bk"], x @ p["wv"] - p["bv"]
    return mixed(q, k, v, n_heads, (q.shape[-1] / n_heads) ** 0.5) @ p["wo"]


def divided(q: Any, k: Any, v: Any, scale: float) -> Any:
    return shares(q @ k.swapaxes(-1, -2) / scale) @ v


@pytest.mark.long
@pytest.mark.parametrize(
    "function", [with_biases, nested, in_place, of_fields, columns, heads_between, packed, divided]
)
def test_right_functions_of_a_mapping_pass(function: Any) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert verdict.passed, verdict


@pytest.mark.long
def test_a_mistake_beside_a_mapping_has_its_name() -> None:
    assert attn_exp.check(by_width, quick=True).mistakes == ("scale_by_sqrt_d_model",)


@pytest.mark.long
def test_a_bias_with_a_wrong_sign_does_not_pass() -> None:
    verdict = attn_exp.check(without_bias_of_keys, quick=True)
    assert not verdict.passed
    assert "sizes=" not in str(verdict)


@pytest.mark.long
def test_powers_of_large_logits_that_overflow_in_float32_are_named() -> None:
    jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed: pip install 'attn-exp[jax]'")
    import jax  # noqa: PLC0415 - the line above skips where it is not installed

    @jax.jit
    def raw(weights: dict[str, Any], x: Any) -> Any:
        q, k, v = x @ weights["wq"], x @ weights["wk"], x @ weights["wv"]
        powers = jnp.exp(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)
        return powers / powers.sum(-1, keepdims=True) @ v @ weights["wo"]

    assert attn_exp.check(raw, quick=True).mistakes == ("no_max_subtraction",)
