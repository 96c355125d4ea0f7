"""Layers whose keys and values are parameters of their own: a memory that is asked by tokens."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch

from attn_exp.diagnosis.calling.way import Way
from attn_exp.diagnosis.reading.learned_memory import Asked


class OfSlots(torch.nn.Module):
    """One head; its memory are two parameters of as many rows."""

    over = -1

    def __init__(self, dim: int, slots: int = 11) -> None:
        super().__init__()
        self.to_q = torch.nn.Linear(dim, dim)
        self.mem_k, self.mem_v = (torch.nn.Parameter(torch.randn(slots, dim)) for _ in "kv")

    def scale(self, dim: int) -> float:
        return float(dim**-0.5)

    def forward(self, x: Any) -> Any:
        return (self.to_q(x) @ self.mem_k.T * self.scale(x.shape[-1])).softmax(self.over) @ self.mem_v


class Unscaled(OfSlots):
    def scale(self, dim: int) -> float:
        return 1.0


class OverTokens(OfSlots):
    over = 1


class OfHeads(torch.nn.Module):
    """Its memory is cut into heads; values lie with slots last."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.out_proj = torch.nn.Linear(dim, dim), torch.nn.Linear(dim, dim)
        self.keys = torch.nn.Parameter(torch.randn(1, num_heads, 10, dim // num_heads))
        self.values = torch.nn.Parameter(torch.randn(num_heads, dim // num_heads, 10))

    def forward(self, x: Any) -> Any:
        q = self.q_proj(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        weights = (q @ self.keys.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.out_proj((weights @ self.values.mT).transpose(1, 2).flatten(2))


class OfRows(torch.nn.Module):
    """Keys and values are made of one memory."""

    def __init__(self, dim: int, slots: int = 12) -> None:
        super().__init__()
        self.memory = torch.nn.Parameter(torch.randn(slots, dim))
        self.q, self.k, self.v = (torch.nn.Linear(dim, dim) for _ in "qkv")

    def forward(self, x: Any) -> Any:
        return (self.q(x) @ self.k(self.memory).T / x.shape[-1] ** 0.5).softmax(-1) @ self.v(self.memory)


class OfLayers(torch.nn.Module):
    """Its memory are the weights of two layers, and x is what asks."""

    def __init__(self, dim: int, slots: int = 20) -> None:
        super().__init__()
        self.mk, self.mv = torch.nn.Linear(dim, slots, bias=False), torch.nn.Linear(slots, dim, bias=False)

    def forward(self, x: Any) -> Any:
        return self.mv((self.mk(x) * x.shape[-1] ** -0.5).softmax(-1))


class Forward(torch.nn.Module):
    """No attention: what it does to each token is no softmax."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(dim, 4 * dim, bias=False), torch.nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x: Any) -> Any:
        return self.last(torch.relu(self.first(x)))


class NormedTwice(OfLayers):
    def forward(self, x: Any) -> Any:
        weights = self.mk(x).softmax(1)
        return self.mv(weights / weights.sum(-1, keepdim=True))


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        (OfSlots, ()),
        (Unscaled, ("no_scale",)),
        (OverTokens, ("softmax_over_queries",)),
        (OfHeads, ()),
        (OfRows, ()),
        (OfLayers, ()),
    ],
)
def test_a_learned_memory_is_judged_as_a_context(layer: Any, names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(layer)
    assert (verdict.passed, verdict.mistakes) == (not names, names)
    assert "made of a context" in verdict.findings[0].said


def test_what_a_layer_remembers_is_found_by_what_it_does() -> None:
    way = Way({"x": "x"}, "btm", width=8)
    (pair,) = Asked(OfHeads(8, 2).double(), way).pairs()
    assert [(one.name, one.axis) for one in pair] == [("keys", 2), ("values", 2)]
    assert [(one.name, one.axis) for one in Asked(OfRows(8).double(), way).alone()] == [("memory", 0)]


def test_what_weighs_twice_says_so() -> None:
    with pytest.raises(attn_exp.UserError, match="over tokens and over"):
        attn_exp.check(NormedTwice)


def test_where_no_token_sees_another_it_is_said() -> None:
    verdict = attn_exp.check(Forward)
    assert verdict.stage == "scores" and not verdict.mistakes and "no token sees another" in verdict.computes
