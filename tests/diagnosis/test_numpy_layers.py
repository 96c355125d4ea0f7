"""Classes of NumPy, their objects, and dropout in them: what is checked where no library says what a layer is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.errors import UncalledError
from tests.diagnosis.functions import attend, logits, merge, softmax, split


class Layer:
    """Multi-head attention of `[b t m]` with a mask."""

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.1) -> None:
        rng = np.random.default_rng(1)
        self.heads, self.dropout = num_heads, dropout
        self.W_q, self.W_k, self.W_v, self.W_o = rng.standard_normal((4, d_model, d_model)) / d_model**0.5

    def score(self, q: Any, k: Any) -> Any:
        return logits(q, k)

    def drop(self, weights: Any, training: bool) -> Any:
        return weights * (np.random.random(weights.shape) >= self.dropout) / (1 - self.dropout) if training else weights

    def forward(self, x: Any, mask: Any = None, training: bool = False) -> Any:
        q, k, v = (split(x @ side, self.heads) for side in (self.W_q, self.W_k, self.W_v))
        scores = self.score(q, k)
        scores = scores if mask is None else np.where(mask, scores, -np.inf)
        return merge(self.drop(softmax(scores), training) @ v) @ self.W_o


class OfTokens(Layer):
    """One text `[t m]`."""

    def forward(self, x: Any) -> Any:  # type: ignore[override]
        assert x.ndim == 2
        return super().forward(x)


class OfChance(Layer):
    """Draws its matrices itself."""

    def __init__(self, d_model: int, n_heads: int, rng: Any) -> None:
        super().__init__(d_model, n_heads)
        self.W_q, self.W_k, self.W_v, self.W_o = rng.standard_normal((4, d_model, d_model)) / d_model**0.5


class Documented:
    """What takes a width (Standard Master): no signature stands in brackets."""

    def __init__(self, d_model: int = 512) -> None:
        self.W_q, self.W_k, self.W_v = np.random.default_rng(1).standard_normal((3, d_model, d_model)) / d_model**0.5

    def calculate_attention(self, x: Any) -> Any:
        return attend(x @ self.W_q, x @ self.W_k, x @ self.W_v)


class Unscaled(Layer):
    def score(self, q: Any, k: Any) -> Any:
        return q @ k.swapaxes(-1, -2)


class DropsAlways(Layer):
    def drop(self, weights: Any, training: bool) -> Any:
        return super().drop(weights, True)


class FactorStays(Layer):
    def drop(self, weights: Any, training: bool) -> Any:
        return super().drop(weights, training) / (1.0 if training else 1 - self.dropout)


class OfGraph(Layer):
    def forward(self, x: Any, graph: Any) -> Any:  # type: ignore[override]
        return super().forward(x) @ graph.edges


def factory(kind: type[Layer]) -> Any:
    def make() -> Any:
        layer, x = kind(16, 2), np.random.default_rng(0).standard_normal((2, 5, 16))
        return layer.forward, {"x": x}, {"heads": 2}

    return make


@pytest.mark.parametrize("target", [Layer, Layer(16, 4), OfTokens, OfChance, Documented, factory(Layer)])
def test_a_right_layer_is_right(target: Any) -> None:
    verdict = attn_exp.check(target, quick=True)
    assert not verdict.is_wrong and not verdict.mistakes, verdict


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "name"),
    [
        (Unscaled, "no_scale"), (Unscaled(16, 4), "no_scale"), (factory(Unscaled), "no_scale"),
        (DropsAlways, "dropout_on"), (FactorStays, "dropout_on"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(target: Any, name: str) -> None:
    assert name in attn_exp.check(target, quick=True).mistakes


class DrawnAnew(Layer):
    """It holds a number of chance that is no weight: one that is made anew gives other answers anyway."""

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.1) -> None:
        super().__init__(d_model, num_heads, dropout)
        self.shift = float(np.random.random())

    def forward(self, x: Any, mask: Any = None, training: bool = False) -> Any:
        return super().forward(x, mask, training) + self.shift


@pytest.mark.long
def test_another_answer_of_one_made_anew_is_dropout_only_where_it_is_the_same_without() -> None:
    assert "dropout_on" not in attn_exp.check(DrawnAnew, quick=True).mistakes


def test_what_cannot_be_called_is_not_verified() -> None:
    with pytest.raises(UncalledError, match="OfGraph needs `graph`, whose meaning is not known"):
        attn_exp.check(OfGraph)
