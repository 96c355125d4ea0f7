"""Parts of forward passes, each held to arithmetic by hand or to Python's own functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attn_exp.problem.models import _parts as parts
from attn_exp.problem.models import bert, gpt2
from attn_exp.problem.models.model import Layer, read_fields

X = np.linspace(-12, 12, 4801, dtype=np.float32)


class Weights:
    """The weights of a norm whose bias is 0."""

    def __init__(self, *weights: float) -> None:
        self.weights = np.array(weights)

    def array(self, name: str) -> np.ndarray[Any, Any]:
        return self.weights * name.endswith("weight")


def test_the_error_function_is_that_of_python() -> None:
    np.testing.assert_allclose(parts.erf(X), [math.erf(x) for x in X], rtol=0, atol=3e-7)


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("gelu", lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2),
        ("gelu_new", lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2),
        ("silu", lambda x: x / (1 + math.exp(-x))),
        ("relu", lambda x: max(x, 0.0)),
    ],
)
def test_activations_follow_their_formulas(name: str, formula: object) -> None:
    before = X.copy()
    assert callable(formula)
    np.testing.assert_allclose(parts.ACTIVATIONS[name](X), [formula(float(x)) for x in X], rtol=1e-5, atol=2e-6)
    assert np.array_equal(X, before)


def test_a_root_mean_square_norm_by_hand() -> None:
    normed = parts.rms_norm(np.array([[3.0, 4.0]]), Weights(1.0, 2.0), "", 0.0)  # type: ignore[arg-type] # no more is asked
    np.testing.assert_allclose(normed, [[3 / math.sqrt(12.5), 8 / math.sqrt(12.5)]])


def test_attention_by_hand() -> None:
    """One token sees itself alone; the other both, with logits 0 and ln 3: it takes a quarter and three quarters."""
    one = np.eye(2)
    arrays = {"W_q": one, "W_k": one, "W_v": one, "W_o": 2 * one}
    x = np.array([[0.0, 2.0], [math.sqrt(math.log(3)), 0.0]])
    given = parts.attend(Layer(x, arrays, 1, scale=False, mask={"causal": {}}))
    np.testing.assert_allclose(given, [[0, 4], [2 * 0.75 * x[1, 0], 2 * 0.25 * 2]])


def test_the_epsilon_of_a_norm_stands_under_the_root() -> None:
    x = np.array([[3.0, 1.0]])  # mean 2, variance 1
    np.testing.assert_allclose(parts.layer_norm(x, Weights(1, 1), "ln", 3.0), [[0.5, -0.5]])  # type: ignore[arg-type] # no more is asked
    np.testing.assert_allclose(parts.rms_norm(x, Weights(1, 1), "ln", 4.0), [[1.0, 1 / 3]])  # type: ignore[arg-type] # 3 and 1 over sqrt(5 + 4)


@pytest.mark.parametrize(
    ("said", "scales"),
    [
        ({}, [True, True]),
        ({"scale_attn_weights": False}, [False, False]),
        ({"scale_attn_by_inverse_layer_idx": True}, [0.5, 0.25]),  # 1 / sqrt(4), and over 2
        ({"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False}, [1.0, 0.5]),
    ],
)
def test_the_scale_of_gpt2(said: dict[str, bool], scales: list[bool | float]) -> None:
    config = read_fields({"model_type": "gpt2", "n_embd": 8, "n_head": 2, **said}, gpt2.FIELDS)
    assert [gpt2.scale(config, number) for number in range(2)] == scales


def test_roberta_counts_places_from_one_after_its_filler_and_fillers_not() -> None:
    assert bert.number_tokens(np.array([5, 1, 9, 9, 1, 2]), 1).tolist() == [2, 1, 3, 4, 1, 5]
    assert bert.number_tokens(np.array([5, 1, 3]), 3).tolist() == [4, 5, 3]
