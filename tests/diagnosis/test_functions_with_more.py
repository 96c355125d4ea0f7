"""Functions that need more than their arrays: a window, a mapping that helpers read, what was kept of earlier calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp


def softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def windowed(q: Any, k: Any, v: Any, window_size: int, rest: int) -> Any:
    assert window_size % 2 == rest, "of the other kind"
    rows, keys = np.indices((q.shape[-2], k.shape[-2]))
    near = abs(rows - keys) <= window_size // 2
    scores = np.where(near, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    return softmax(scores) @ v


@pytest.mark.parametrize("rest", [0, 1])
def test_a_window_that_must_be_even_or_odd_is_as_wide_as_all(rest: int) -> None:
    def attention(q: Any, k: Any, v: Any, window_size: int) -> Any:
        return windowed(q, k, v, window_size, rest)

    verdict = attn_exp.check(attention, quick=True)
    assert verdict.passed, verdict


def line(layer: Any, x: Any) -> Any:
    return x @ layer["kernel"] + layer["bias"]


def cut(x: Any) -> Any:
    return x.reshape(*x.shape[:2], 4, -1).swapaxes(1, 2)


def of_four_heads(weights: Any, x: Any, causal_mask: Any = None) -> Any:
    """Helpers read the mapping, and the number of heads stands in the code."""
    q, k, v = cut(line(weights["query"], x)), cut(line(weights["key"], x)), cut(line(weights["value"], x))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal_mask is not None:
        scores = scores + np.where(causal_mask, 0.0, -1e9)[None, None]
    context = (softmax(scores) @ v).swapaxes(1, 2).reshape(x.shape)
    return line(weights["out"], context)


def with_heads_of_its_own_and_causal(weights: Any, x: Any) -> Any:
    return of_four_heads(weights, x, np.tri(x.shape[1]))


def test_a_mapping_that_helpers_read_is_given_and_heads_in_the_code_are_found() -> None:
    verdict = attn_exp.check(of_four_heads)
    assert verdict.passed and verdict.right_under == "head=4", verdict
    assert next(one.state for one in verdict.findings if one.rung == "masks") == "held", verdict
    verdict = attn_exp.check(with_heads_of_its_own_and_causal)
    assert verdict.passed and verdict.right_under == "mask=causal head=4", verdict


def of_what_is_kept(query: Any, memory: Any) -> Any:
    count = memory["filled"]
    keys, values = memory["keys"][..., :count, :], memory["values"][..., :count, :]
    return softmax(query @ keys.swapaxes(-1, -2) / np.sqrt(query.shape[-1])) @ values


def of_what_is_kept_unscaled(query: Any, memory: Any) -> Any:
    return softmax(query @ memory["keys"].swapaxes(-1, -2)) @ memory["values"]


def test_keys_and_values_are_kept_in_a_mapping() -> None:
    assert attn_exp.check(of_what_is_kept, quick=True).passed
    assert attn_exp.check(of_what_is_kept_unscaled, quick=True).mistakes == ("no_scale",)


def of_turned(layers: Any, name: str, x: Any) -> Any:
    return x @ layers[name]["weight"].T + layers[name]["bias"]


def of_layers_by_name(x: Any, layers: Any) -> Any:
    q, k, v = (of_turned(layers, name, x) for name in ("q_proj", "k_proj", "v_proj"))
    return of_turned(layers, "out_proj", softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v)


def test_layers_in_a_mapping_may_hold_their_matrices_as_pytorch_does() -> None:
    assert attn_exp.check(of_layers_by_name, quick=True).passed


def of_two_heads_and_wide(x: Any, Wq: Any, Wk: Any, Wv: Any, Wo: Any) -> Any:
    q, k, v = ((x @ side).reshape(len(x), 2, -1).swapaxes(0, 1) for side in (Wq, Wk, Wv))
    weights = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(x.shape[-1]))
    return (weights @ v).swapaxes(0, 1).reshape(x.shape) @ Wo


def test_a_mistake_beside_heads_of_its_own_is_named() -> None:
    verdict = attn_exp.check(of_two_heads_and_wide, quick=True)
    assert verdict.mistakes == ("scale_by_sqrt_d_model",), verdict


class TurnedByTables:
    """Is made of its matrices, and takes the cosines and sines of each two numbers."""

    which: tuple[int, ...] = (0, 1)

    def __init__(self, q_weight: Any, k_weight: Any, v_weight: Any, o_weight: Any, n_heads: int) -> None:
        self.sides, self.last, self.heads = (q_weight.T, k_weight.T, v_weight.T), o_weight.T, n_heads

    def __call__(self, x: Any, freqs_cos: Any, freqs_sin: Any) -> Any:
        sides = [(x @ side).reshape(*x.shape[:2], self.heads, -1) for side in self.sides]
        for place in self.which:
            even, odd = sides[place][..., ::2], sides[place][..., 1::2]
            cos, sin = freqs_cos[None, :, None], freqs_sin[None, :, None]
            turned = even * cos - odd * sin, even * sin + odd * cos
            sides[place] = np.stack(turned, axis=-1).reshape(sides[place].shape)
        q, k, v = (side.swapaxes(1, 2) for side in sides)
        shares = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
        return (shares @ v).swapaxes(1, 2).reshape(x.shape) @ self.last


class TurnsQueriesAlone(TurnedByTables):
    which = (0,)


ROTARY = ("position=rope", "position.rope.interleaved=true")


@pytest.mark.parametrize("beside", ["numpy", "torch"])
def test_tables_of_a_function_hold_the_angles_that_are_asked_for(beside: str) -> None:
    pytest.importorskip(beside, reason=f"{beside} is not installed")
    assert attn_exp.check(TurnedByTables, quick=True).passed
    assert attn_exp.check(TurnedByTables, *ROTARY, quick=True).passed
    assert attn_exp.check(TurnsQueriesAlone, *ROTARY, quick=True).mistakes == ("position_missing",)


class OfChance:
    """Draws its matrices itself."""

    def __init__(self, d_model: int, n_heads: int, rng: Any) -> None:
        self.q, self.k, self.v, self.o = rng.standard_normal((4, d_model, d_model)) / np.sqrt(d_model)
        self.heads = n_heads

    def forward(self, x: Any) -> Any:
        q, k, v = ((x @ side).reshape(*x.shape[:2], self.heads, -1).swapaxes(1, 2) for side in (self.q, self.k, self.v))
        shares = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
        return (shares @ v).swapaxes(1, 2).reshape(x.shape) @ self.o


@pytest.mark.parametrize("beside", ["numpy", "jax", "torch"])
def test_a_class_that_wants_a_source_of_random_numbers_is_made_with_one(beside: str) -> None:
    pytest.importorskip(beside, reason=f"{beside} is not installed")  # a library that is loaded is not the class's own
    assert attn_exp.check(OfChance, quick=True).passed
