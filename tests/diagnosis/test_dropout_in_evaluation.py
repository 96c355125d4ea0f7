"""Dropout, or its factor alone, that stays on in evaluation is seen in a layer of any library, and of none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attn_exp


class Weighing:
    """Attention of one head in NumPy, whose dropout stands in `dropped`."""

    def __init__(self, d_model: int, dropout: float = 0.1) -> None:
        rng = np.random.default_rng(1)
        self.rate = dropout
        self.w_q, self.w_k, self.w_v = rng.standard_normal((3, d_model, d_model)) / d_model**0.5

    def forward(self, x: Any, training: bool = True) -> Any:
        scores = (x @ self.w_q) @ (x @ self.w_k).swapaxes(-1, -2) / self.w_q.shape[1] ** 0.5
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return self.dropped(powers / powers.sum(-1, keepdims=True), training) @ (x @ self.w_v)

    def dropped(self, weights: Any, training: bool) -> Any:
        return weights * (np.random.random(weights.shape) >= self.rate) / (1 - self.rate) if training else weights


class FactorStays(Weighing):
    def dropped(self, weights: Any, training: bool) -> Any:
        kept = np.random.random(weights.shape) >= self.rate if training else 1.0
        return weights * kept / (1 - self.rate)


class DrawnAnew(Weighing):
    """It holds numbers of chance that are no weights: one that is made anew gives other answers anyway."""

    def forward(self, x: Any, training: bool = True) -> Any:
        return super().forward(x, training) + self.shift

    def __init__(self, d_model: int, dropout: float = 0.1) -> None:
        super().__init__(d_model, dropout)
        self.shift = float(np.random.random())


@pytest.mark.long
@pytest.mark.parametrize(("kind", "names"), [(Weighing, ()), (FactorStays, ("dropout_on",))])
def test_the_factor_of_dropout_is_gone_in_evaluation(kind: Any, names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.mistakes == names and verdict.passed is not bool(names), verdict


@pytest.mark.long
def test_another_answer_of_one_made_anew_is_dropout_only_where_it_is_the_same_without() -> None:
    assert "dropout_on" not in attn_exp.check(DrawnAnew, quick=True).mistakes


OF_LINEN = """
import jax
from flax import linen

class Layer(linen.Module):
    features: int
    dropout: float = 0.1

    @linen.compact
    def __call__(self, x, deterministic=True):
        q, k, v = (linen.Dense(self.features, name=name)(x) for name in "qkv")
        weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / self.features ** 0.5)
        return linen.Dropout(self.dropout)(weights, deterministic=SWITCH) @ v
"""
OF_NNX = """
import jax
from flax import nnx

class Layer(nnx.Module):
    def __init__(self, features, dropout=0.1, *, rngs):
        self.q, self.k, self.v = (nnx.Linear(features, features, rngs=rngs) for _ in "qkv")
        self.drop = nnx.Dropout(dropout, rngs=rngs)

    def __call__(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / x.shape[-1] ** 0.5)
        return self.drop(weights, deterministic=SWITCH) @ v
"""
OF_HAIKU = """
import haiku as hk
import jax

class Layer(hk.Module):
    def __init__(self, features, dropout=0.1, name=None):
        super().__init__(name=name)
        self.features, self.rate = features, dropout

    def __call__(self, x, is_training=False):
        q, k, v = (hk.Linear(self.features, name=name)(x) for name in "qkv")
        weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / self.features ** 0.5)
        return (weights if SWITCH else hk.dropout(hk.next_rng_key(), self.rate, weights)) @ v
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "switches"),
    [(OF_LINEN, ("deterministic", "False")), (OF_NNX, ("None", "False")), (OF_HAIKU, ("not is_training", "False"))],
)
def test_layers_of_jax_are_asked_with_dropout_too(code: str, switches: tuple[str, str], tmp_path: Path) -> None:
    pytest.importorskip("haiku" if "haiku" in code else "flax", reason="it is not installed")
    for place, (switch, names) in enumerate(zip(switches, ((), ("dropout_on",)), strict=True)):
        path = tmp_path / f"layer{place}.py"
        path.write_text(code.replace("SWITCH", switch), encoding="utf-8")
        verdict = attn_exp.check(f"{path}:Layer", quick=True)
        is_named = verdict.mistakes == names and verdict.is_wrong is bool(names)
        refuses = "haiku" not in code and "`dropout` in evaluation" in str(verdict)  # it asks for random numbers then
        assert is_named or (names and refuses and verdict.outcome == "not verified"), verdict


def test_objects_of_other_sizes_are_not_held_against_each_other() -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")

    class Narrower(torch.nn.Module):
        """Its answer is as wide as its class is told: with sizes apart it is another one."""

        def __init__(self, d_in: int, d_out: int, context_length: int, dropout: float) -> None:
            super().__init__()
            self.q, self.k, self.v = (torch.nn.Linear(d_in, d_out) for _ in range(3))
            self.drop = torch.nn.Dropout(dropout)
            self.register_buffer("later", torch.triu(torch.ones(context_length, context_length), 1).bool())

        def forward(self, x: Any) -> Any:
            scores = self.q(x) @ self.k(x).mT / self.q.out_features**0.5
            later = self.later[: x.shape[1], : x.shape[1]]
            return self.drop(scores.masked_fill(later, -torch.inf).softmax(-1)) @ self.v(x)

    verdict = attn_exp.check(Narrower)
    assert not verdict.mistakes and verdict.right_under == "mask=causal", verdict
