"""Layers that answer otherwise in each call: what else is wrong with them is named beside that."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import attn_exp  # noqa: E402
from attn_exp.diagnosis.asking.chance import start_over, without_chance  # noqa: E402
from tests.diagnosis.test_bugs_of_others import Three  # noqa: E402


class AlwaysDrops(Three):
    def weigh(self, scores: Any) -> Any:
        return F.dropout(scores.softmax(-1), 0.2)


class DropsUnscaled(AlwaysDrops):
    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.transpose(-1, -2)


class DropsByAModuleOfItsCall(Three):
    def weigh(self, scores: Any) -> Any:
        return nn.Dropout(0.2)(scores.softmax(-2))


class MadeAnew(nn.Module):
    """Makes its output projection in each call, and puts its heads together with a view alone."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x: Any) -> Any:
        b, t, m = x.shape
        q, k, v = (w(x).view(b, t, self.num_heads, -1).transpose(1, 2) for w in (self.w_q, self.w_k, self.w_v))
        context = (q @ k.transpose(-1, -2) / math.sqrt(m // self.num_heads)).softmax(-1) @ v
        return nn.Linear(m, m)(context.reshape(b, t, m))


class AllMadeAnew(nn.Module):
    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.w_o = num_heads, nn.Linear(d_model, d_model)

    def forward(self, x: Any) -> Any:
        b, t, m = x.shape
        q, k, v = (nn.Linear(m, m)(x).view(b, t, self.num_heads, -1).transpose(1, 2) for _ in range(3))
        return self.w_o(((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).reshape(b, t, m))


class ArraysMadeAnew:
    def __init__(self, d_model: int, num_heads: int) -> None:
        self.num_heads = num_heads
        self.w_q, self.w_k, self.w_v = np.random.default_rng(3).standard_normal((3, d_model, d_model)) / 5

    def forward(self, x: Any) -> Any:
        b, t, m = x.shape
        q, k, v = ((x @ w).reshape(b, t, self.num_heads, -1).swapaxes(1, 2) for w in (self.w_q, self.w_k, self.w_v))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(m)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        context = powers / powers.sum(axis=-1, keepdims=True) @ v
        return context.swapaxes(1, 2).reshape(b, t, m) @ np.random.randn(m, m)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (AlwaysDrops, {"dropout_on"}),
        (DropsUnscaled, {"dropout_on", "no_scale"}),
        (DropsByAModuleOfItsCall, {"dropout_on", "softmax_over_queries"}),
        (MadeAnew, {"not_deterministic", "heads_merged_wrong"}),
        (AllMadeAnew, {"not_deterministic", "no_scale"}),
        (ArraysMadeAnew, {"not_deterministic", "scale_by_sqrt_d_model"}),
    ],
)
def test_what_is_wrong_beside_chance_is_named(kind: Any, names: set[str]) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert set(verdict.mistakes) == names and not verdict.passed, verdict


def test_random_numbers_start_over_in_each_call_and_go_on_afterwards_from_where_they_were() -> None:
    def drawn() -> list[float]:
        start_over()
        return [
            random.random(),
            float(np.random.rand()),
            float(np.random.default_rng().random()),
            float(torch.rand(())),
        ]

    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(11)
    before = F.dropout
    with without_chance():
        assert drawn() == drawn()
        assert (F.dropout(torch.ones(50), 0.5) == 1).all()
        q = torch.ones(1, 4, 8)
        assert (F.scaled_dot_product_attention(q, q, q, dropout_p=0.5) == 1).all()
    assert F.dropout is before and drawn() != drawn()
    random.seed(11)
    assert drawn()[0] != random.random()


class Drawn:
    """No attention: it holds one matrix, and draws another in each call."""

    def __init__(self, dim: int) -> None:
        self.matrix = np.random.default_rng(3).standard_normal((dim, dim))

    def forward(self, x: Any) -> Any:
        return np.tanh(x @ self.matrix @ np.random.standard_normal(self.matrix.shape))


class Kept(Drawn):
    def forward(self, x: Any) -> Any:
        return np.tanh(x @ self.matrix @ self.matrix)


def test_what_draws_in_each_call_is_told_where_no_attention_is_found() -> None:
    verdict = attn_exp.check(Drawn, quick=True)
    assert not verdict.passed and verdict.mistakes == ("not_deterministic",), verdict
    kept = attn_exp.check(Kept, quick=True)
    assert kept.stage == "scores" and not kept.mistakes and "no token sees another" in kept.computes
