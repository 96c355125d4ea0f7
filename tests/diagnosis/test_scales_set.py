"""A scale that a number of the configuration sets is a setting; what the code does to the scores beside it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")

import torch


@dataclass
class Settings:
    """What a layer is made of."""

    hidden_size: int = 64
    num_attention_heads: int = 4
    attention_multiplier: float = 0.4
    query_scalar: int = 256
    softcapping: float = 30.0


class Multiplied(torch.nn.Module):
    """Its scores are multiplied by a number of its configuration."""

    def __init__(self, config: Settings) -> None:
        super().__init__()
        width, self.heads = config.hidden_size, config.num_attention_heads
        self.q, self.k, self.v, self.o = (torch.nn.Linear(width, width) for _ in range(4))
        self.size = width // self.heads
        self.set_up(config)

    def set_up(self, config: Settings) -> None:
        """Keep what the scores are multiplied by."""
        self.scale = config.attention_multiplier

    def bent(self, logits: Any) -> Any:
        """Return what the softmax is given."""
        return logits

    def forward(self, x: Any) -> Any:
        q, k, v = (made(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for made in (self.q, self.k, self.v))
        weights = self.bent(q @ k.mT * self.scale).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class OfAScalar(Multiplied):
    """The number stands for the size of a head."""

    def set_up(self, config: Settings) -> None:
        self.scale = config.query_scalar**-0.5


class Halved(Multiplied):
    """The code halves what the configuration sets."""

    def set_up(self, config: Settings) -> None:
        self.scale = config.attention_multiplier * 0.5


class WithoutRoot(Multiplied):
    """The code forgets the root of the number that stands for the size of a head."""

    def set_up(self, config: Settings) -> None:
        self.scale = 1 / config.query_scalar


class NeverScaled(Multiplied):
    """The code reads the number and has no scale."""

    def set_up(self, config: Settings) -> None:
        self.said, self.scale = config.attention_multiplier, 1.0


class Capped(OfAScalar):
    """Its logits are bent."""

    def set_up(self, config: Settings) -> None:
        super().set_up(config)
        self.cap = config.softcapping

    def bent(self, logits: Any) -> Any:
        return self.cap * torch.tanh(logits / self.cap)


@pytest.mark.parametrize(("kind", "scale"), [(Multiplied, "0.4"), (OfAScalar, "0.0625")])
def test_a_scale_that_is_set_is_no_mistake(kind: Any, scale: str) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.passed and verdict.right_under == f"scale={scale}", verdict


@pytest.mark.parametrize("kind", [Halved, WithoutRoot, NeverScaled], ids=lambda kind: kind.__name__)
def test_what_the_code_does_beside_it_is_one(kind: Any) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.is_wrong and any("scale" in name for name in verdict.mistakes), verdict


def test_a_cap_is_seen_before_its_scale() -> None:
    verdict = attn_exp.check(Capped, quick=True)
    assert verdict.passed, verdict
    assert verdict.right_under == "scale=0.0625 score=softcap score.softcap.cap=30", verdict
