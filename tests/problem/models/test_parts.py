"""Parts of forward passes, each held to arithmetic by hand or to Python's own functions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attn_exp.problem.models import _parts as parts
from attn_exp.problem.models.model import Layer

X = np.linspace(-12, 12, 4801, dtype=np.float32)


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
    normed = parts.rms_norm(np.array([[3.0, 4.0]]), np.array([1.0, 2.0]), 0.0)
    np.testing.assert_allclose(normed, [[3 / math.sqrt(12.5), 8 / math.sqrt(12.5)]])


def test_attention_by_hand() -> None:
    """One token sees itself alone; the other both, with logits 0 and ln 3: it takes a quarter and three quarters."""
    one = np.eye(2)
    arrays = {"W_q": one, "W_k": one, "W_v": one, "W_o": 2 * one}
    x = np.array([[0.0, 2.0], [math.sqrt(math.log(3)), 0.0]])
    given = parts.attend(Layer(x, arrays, 1, scale=False, mask={"causal": {}}))
    np.testing.assert_allclose(given, [[0, 4], [2 * 0.75 * x[1, 0], 2 * 0.25 * 2]])
