"""Objects of no library whose matrices are made when they are called first, by the width of what they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp
from tests.diagnosis.layers_of_no_library import shares


class Lazy:
    """Matrices of attributes, and the weights of the last call beside them."""

    factor = 1.0

    def __init__(self, d_k: int = 16) -> None:
        self.d_k = d_k
        self.W_q: Any = None

    def __call__(self, x: Any) -> Any:
        if self.W_q is None:
            rng = np.random.default_rng(1)
            self.W_q, self.W_k, self.W_v = (rng.standard_normal((x.shape[-1], self.d_k)) for _ in "qkv")
        self.q, self.k, self.v = x @ self.W_q, x @ self.W_k, x @ self.W_v
        self.weights = shares(self.factor * self.q @ np.swapaxes(self.k, -1, -2) / self.d_k**0.5)
        return self.weights @ self.v


class LazyUnscaled(Lazy):
    def __call__(self, x: Any) -> Any:
        self.factor = self.d_k**0.5
        return super().__call__(x)


class LazyMapping:
    """A mapping that a method fills, near 0 as many start, and one text of tokens alone."""

    of_model = False

    def __init__(self, num_heads: int = 4) -> None:
        self.num_heads, self.params = num_heads, dict[str, Any]()

    def initialize(self, width: int) -> None:
        rng = np.random.default_rng(2)
        for side in "qkvo":
            self.params[f"W{side}"] = rng.standard_normal((width, width)) * 1e-5
            self.params[f"b{side}"] = np.zeros(width)

    def forward(self, x: Any) -> Any:
        if not self.params:
            self.initialize(x.shape[1])
        rows, width = x.shape
        q, k, v = (
            (x @ self.params[f"W{side}"] + self.params[f"b{side}"])
            .reshape(rows, self.num_heads, width // self.num_heads)
            .swapaxes(0, 1)
            for side in "qkv"
        )
        size = width if self.of_model else width // self.num_heads
        weights = shares(q @ np.swapaxes(k, -1, -2) / size**0.5)
        self.cache = (q, k, v, weights)
        return (weights @ v).swapaxes(0, 1).reshape(rows, width) @ self.params["Wo"] + self.params["bo"]


class LazyOfModel(LazyMapping):
    of_model = True


class OneIsLate:
    """The matrix of the output alone is made late; a table of places is made anew for each number of tokens."""

    def __init__(self, d_model: int) -> None:
        rng = np.random.default_rng(3)
        self.W_q, self.W_k, self.W_v = (rng.standard_normal((d_model, d_model)) for _ in "qkv")
        self.W_o: Any = None
        self.shown: Any = None

    def forward(self, x: Any) -> Any:
        if self.W_o is None:
            self.W_o = np.random.default_rng(4).standard_normal((x.shape[2], x.shape[2]))
        if self.shown is None or len(self.shown) != x.shape[1]:
            self.shown = np.zeros((x.shape[1], x.shape[1]))
        q, k, v = x @ self.W_q, x @ self.W_k, x @ self.W_v
        return shares(q @ np.swapaxes(k, -1, -2) / x.shape[2] ** 0.5 + self.shown) @ v @ self.W_o


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        (Lazy, ()),
        (Lazy(), ()),
        (LazyUnscaled, ("no_scale",)),
        (LazyMapping, ()),
        (LazyOfModel, ("scale_by_sqrt_d_model",)),
        (OneIsLate, ()),
    ],
)
def test_matrices_may_be_made_by_the_first_call(layer: Any, names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(layer)
    assert (verdict.passed, verdict.mistakes) == (not names, names)
    assert verdict.findings[0].said.startswith("with x and a layer's matrices")


def test_an_object_whose_calls_draw_matrices_each_time_is_seen_from_inside() -> None:
    class Drawing(Lazy):
        def __call__(self, x: Any) -> Any:
            self.W_q = None
            return super().__call__(x)

    verdict = attn_exp.check(Drawing)
    assert verdict.passed
    assert verdict.findings[0].said.endswith("seen from inside")
