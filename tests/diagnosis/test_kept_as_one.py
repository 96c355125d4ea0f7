"""Heads of which a class is told, and of which it keeps that there is one."""

from __future__ import annotations

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
from torch import Tensor, nn


class Told(nn.Module):
    """Attention of several heads; `kept` is how many it keeps of those that it was told."""

    def kept(self, heads: int) -> int:
        return heads

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        if embed_dim % num_heads != 0:
            raise ValueError("the heads do not divide the width")
        self.num_heads, self.scale = self.kept(num_heads), (embed_dim // self.scaled_for(num_heads)) ** -0.5
        self.q, self.k, self.v, self.out = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def scaled_for(self, heads: int) -> int:
        return self.kept(heads)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (side(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for side in (self.q, self.k, self.v))
        mixed = (q @ k.mT * self.scale).softmax(-1) @ v
        made: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return made


class KeptAsOne(Told):
    def kept(self, heads: int) -> int:
        return 1


class KeptAsOneAndScaledForAll(KeptAsOne):
    def scaled_for(self, heads: int) -> int:
        return heads


@pytest.mark.parametrize("kind", [KeptAsOne, KeptAsOneAndScaledForAll])
def test_a_class_that_keeps_one_head_of_those_that_it_is_told_is_named(kind: type[nn.Module]) -> None:
    assert attn_exp.check(kind, quick=True).mistakes == ("single_head",)
    assert attn_exp.check(Told, quick=True).passed
