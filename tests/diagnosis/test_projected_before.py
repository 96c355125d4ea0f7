"""Layers that take queries, keys and values projected already: a matrix is put before each."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import nn


class OnlyLast(nn.Module):
    """It holds what comes after attention alone."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.root = heads, (dim // heads) ** 0.5
        self.last = nn.Linear(dim, dim)

    def cut(self, one: Any) -> Any:
        return one.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        q, k, v = (self.cut(one) for one in (query, key, value))
        scores = q @ k.mT / self.root
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        return self.last(self.joined(scores.softmax(-1) @ v))

    def joined(self, context: Any) -> Any:
        return context.transpose(1, 2).flatten(2)


class WithoutExchange(OnlyLast):
    def joined(self, context: Any) -> Any:
        return context.reshape(context.shape[0], context.shape[2], -1)


class ByWidth(OnlyLast):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.root = dim**0.5


@pytest.mark.parametrize(
    ("layer", "names"),
    [(OnlyLast, ()), (WithoutExchange, ("heads_merged_wrong",)), (ByWidth, ("scale_by_sqrt_d_model",))],
)
def test_what_takes_them_projected_is_asked_as_a_layer(layer: type[nn.Module], names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.mistakes == names, verdict
    assert verdict.passed == (not names)
    assert names == ("heads_merged_wrong",) or "three matrices put before it" in verdict.findings[0].said
