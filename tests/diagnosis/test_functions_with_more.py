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


@pytest.mark.long
def test_a_mapping_that_helpers_read_is_given_and_heads_in_the_code_are_found() -> None:
    verdict = attn_exp.check(of_four_heads)
    assert verdict.passed and verdict.right_under == "head=4", verdict
    assert next(one.state for one in verdict.findings if one.rung == "masks") == "held", verdict
    verdict = attn_exp.check(with_heads_of_its_own_and_causal)
    assert verdict.passed and verdict.right_under == "mask=causal head=4", verdict


def of_turned(layers: Any, name: str, x: Any) -> Any:
    return x @ layers[name]["weight"].T + layers[name]["bias"]


def of_layers_by_name(x: Any, layers: Any) -> Any:
    q, k, v = (of_turned(layers, name, x) for name in ("q_proj", "k_proj", "v_proj"))
    return of_turned(layers, "out_proj", softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v)


def test_layers_in_a_mapping_may_hold_their_matrices_as_pytorch_does() -> None:
    assert attn_exp.check(of_layers_by_name, quick=True).passed


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


def last_beside_last(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    rows, keys = scores.shape[-2:]
    return softmax(np.where(np.tri(rows, keys, keys - rows, dtype=bool), scores, -1e30)) @ v


def test_where_a_causal_mask_begins_is_a_question_to_the_user() -> None:
    verdict = attn_exp.check(last_beside_last, "mask=causal", quick=True)
    assert (verdict.outcome, verdict.right_under) == ("not verified", "align=bottom_right"), verdict
    assert "pass align=bottom_right or top_left" in verdict.not_verified[0]
    assert attn_exp.check(last_beside_last, "mask=causal", "align=bottom_right", quick=True).outcome == "right"
    verdict = attn_exp.check(last_beside_last, "mask=causal", "align=top_left", quick=True)
    assert (verdict.outcome, verdict.mistakes) == ("wrong", ("causal_bottom_right",)), verdict


def with_options(q: Any, k: Any, v: Any, reorder_ops: bool = False, rows_at_once: int = 64, near: bool = False) -> Any:
    outputs = []
    for start in range(0, q.shape[-2], rows_at_once):
        rows = q[..., start : start + rows_at_once, :]
        scale = q.shape[-1] ** -0.5
        scores = (rows * scale) @ k.swapaxes(-1, -2) if reorder_ops else rows @ k.swapaxes(-1, -2) * scale
        outputs.append(softmax(scores / 2 if near else scores) @ v)
    return np.concatenate(outputs, axis=-2)


def test_an_option_is_verified_where_its_other_value_gives_the_right_answers_too() -> None:
    verdict = attn_exp.check(with_options, quick=True)
    assert verdict.not_verified == ("argument `near` (its meaning is not known)",), verdict
