"""Classes of NumPy, their objects and methods, and factories: what is checked where no library says what a layer is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.errors import UncalledError


class Layer:
    """Multi-head attention of `[b t m]` with a mask."""

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.1) -> None:
        rng = np.random.default_rng(1)
        self.heads, self.dropout = num_heads, dropout
        self.W_q, self.W_k, self.W_v, self.W_o = rng.standard_normal((4, d_model, d_model)) / d_model**0.5

    def split(self, x: Any) -> Any:
        return x.reshape(*x.shape[:2], self.heads, -1).swapaxes(1, 2)

    def scale(self, logits: Any, width: int) -> Any:
        return logits / (width / self.heads) ** 0.5

    def drop(self, weights: Any, training: bool) -> Any:
        return weights * (np.random.random(weights.shape) >= self.dropout) / (1 - self.dropout) if training else weights

    def forward(self, x: Any, mask: Any = None, training: bool = False) -> Any:
        q, k, v = (self.split(x @ side) for side in (self.W_q, self.W_k, self.W_v))
        logits = self.scale(q @ k.swapaxes(-1, -2), x.shape[-1])
        logits = logits if mask is None else np.where(mask, logits, -np.inf)
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        weights = self.drop(powers / powers.sum(axis=-1, keepdims=True), training)
        return (weights @ v).swapaxes(1, 2).reshape(x.shape) @ self.W_o


class Unscaled(Layer):
    def scale(self, logits: Any, width: int) -> Any:
        return logits


class OfTokens(Layer):
    """One text `[t m]`."""

    def forward(self, x: Any) -> Any:  # type: ignore[override]
        t, m = x.shape
        return super().forward(x.reshape(1, t, m))[0]


class DropsAlways(Layer):
    def drop(self, weights: Any, training: bool) -> Any:
        return super().drop(weights, True)


def factory(kind: type[Layer]) -> Any:
    def make() -> Any:
        layer, x = kind(16, 2), np.random.default_rng(0).standard_normal((2, 5, 16))
        return layer.forward, {"x": x}, {"heads": 2}

    return make


@pytest.mark.parametrize("target", [Layer, Layer(16, 4), OfTokens, factory(Layer)])
def test_a_right_layer_is_right(target: Any) -> None:
    verdict = attn_exp.check(target, quick=True)
    assert not verdict.is_wrong and not verdict.mistakes, verdict


@pytest.mark.long
@pytest.mark.parametrize("target", [Unscaled, Unscaled(16, 4), factory(Unscaled)])
def test_a_mistake_is_named(target: Any) -> None:
    assert attn_exp.check(target, quick=True).mistakes == ("no_scale",)


def test_dropout_in_evaluation_is_named() -> None:
    assert "dropout_on" in attn_exp.check(DropsAlways, quick=True).mistakes


def test_what_cannot_be_called_is_not_verified() -> None:
    class OfGraph(Layer):
        def forward(self, x: Any, graph: Any) -> Any:  # type: ignore[override]
            return super().forward(x) @ graph.edges

    with pytest.raises(UncalledError, match="OfGraph needs `graph`, whose meaning is not known"):
        attn_exp.check(OfGraph)
