"""Right layers of nobody's library: matrices of NumPy in objects of their authors' classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from attn_exp.arrays import Array


def shares(scores: Array) -> Array:
    """Return the softmax of scores along the last axis."""
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


class Numbers:
    """A parameter with its gradient."""

    def __init__(self, *shape: int) -> None:
        self.data, self.grad = np.random.default_rng(1).standard_normal(shape) * 0.02, np.zeros(shape)


class Dense:
    def __init__(self, into: int, out: int) -> None:
        self.w, self.b, self.seen = Numbers(into, out), Numbers(out), None

    def forward(self, x: Any) -> Any:
        self.seen = x
        return x @ self.w.data + self.b.data


class OfLayers:
    """It has layers of its own, a flag of training, a method that is called `forward`, and drops in training."""

    def __init__(self, d_model: int, h: int, drop_probability: float) -> None:
        self.h, self.training, self.chance = h, True, np.random.default_rng(2)
        self.layers = {word: Dense(d_model, d_model) for word in ("q", "k", "v", "last")}
        assert 0 <= drop_probability < 1

    def forward(self, q_in: Any, k_in: Any, v_in: Any, mask: Any = None) -> Any:
        given = {"q": q_in, "k": k_in, "v": v_in}
        q, k, v = (
            self.layers[word].forward(x).reshape(*x.shape[:2], self.h, -1).swapaxes(1, 2) for word, x in given.items()
        )
        scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        weights = shares(scores if mask is None else np.where(mask, scores, -1e9))
        weights = weights * self.chance.integers(2, size=weights.shape) if self.training else weights
        return self.layers["last"].forward((weights @ v).swapaxes(1, 2).reshape(q_in.shape)), weights


class OfOneText:
    """Matrices in float32, one text of tokens `[t m]`, causal where nothing else is said."""

    scale = True

    def __init__(self, dim: int, num_heads: int) -> None:
        rng = np.random.default_rng(3)
        self.heads, self.hidden = num_heads, np.tril(np.ones((99, 99), np.float32))
        self.W_q, self.W_k, self.W_v, self.W_o = rng.standard_normal((4, dim, dim)).astype(np.float32)

    def attention(self, x: Any, causal: bool = True) -> Any:
        q, k, v = (
            (x @ matrix).reshape(len(x), self.heads, -1).swapaxes(0, 1) for matrix in (self.W_q, self.W_k, self.W_v)
        )
        scores = q @ k.swapaxes(-1, -2) / (q.shape[-1] ** 0.5 if self.scale else 1.0)
        scores = np.where(self.hidden[: len(x), : len(x)], scores, -np.inf) if causal else scores
        return (shares(scores) @ v).swapaxes(0, 1).reshape(x.shape) @ self.W_o


class Unscaled(OfOneText):
    scale = False


class Narrow:
    """A head of its own for each slice of x, with matrices of its own: one text of tokens `[t m]`."""

    def __init__(self, dim: int, heads: int) -> None:
        rng, size = np.random.default_rng(5), dim // heads
        self.each = [{side: rng.standard_normal((size, size)) for side in "vqk"} for _ in range(heads)]
        self.last, self.of_scale = rng.standard_normal((dim, dim)), size

    def forward(self, x: Any) -> Any:
        said = []
        for own, x_h in zip(self.each, np.split(x, len(self.each), -1), strict=True):
            scores = x_h @ own["q"] @ (x_h @ own["k"]).T / self.of_scale**0.5
            said.append(shares(scores) @ (x_h @ own["v"]))
        return np.concatenate(said, -1) @ self.last


class NarrowByWidth(Narrow):
    """The same, scaled by the whole width."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.of_scale = dim
