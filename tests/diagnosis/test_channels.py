"""Attention among channels, as DaViT, XCiT and Restormer mean it, is no mistake of the tokens."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
from torch import nn


class Turned(nn.Module):
    """Heads whose rows are features, each with a number for each token."""

    axis = -1

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.three, self.last = num_heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def sides(self, x: Any) -> Any:
        return self.three(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 4, 1)

    def forward(self, x: Any) -> Any:
        q, k, v = self.sides(x)
        shares = (q @ k.mT / q.shape[-2] ** 0.5).softmax(self.axis)
        return self.last(self.joined(shares @ v))

    def joined(self, context: Any) -> Any:
        return context.flatten(1, 2).mT


class ChannelAttention(Turned):
    """It is meant, and its name says so."""


class Normed(Turned):
    """Its queries and keys have a size of 1 over all tokens, which nobody does by mistake."""

    def sides(self, x: Any) -> Any:
        q, k, v = super().sides(x)
        return nn.functional.normalize(q, dim=-1), nn.functional.normalize(k, dim=-1), v


class OfChannelsJoinedWrongly(ChannelAttention):
    """Channel attention."""

    def joined(self, context: Any) -> Any:
        return context.reshape(len(context), -1, self.last.in_features)


class OfChannelsDown(ChannelAttention):
    """Channel attention."""

    axis = -2


@pytest.mark.parametrize("layer", [ChannelAttention, Normed])
def test_attention_among_channels_that_is_meant_passes(layer: type[nn.Module]) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.passed and "among channels instead of tokens" in verdict.computes, verdict


def test_where_nothing_says_that_it_is_meant_it_has_no_name_and_does_not_pass() -> None:
    verdict = attn_exp.check(Turned, quick=True)
    assert not verdict.passed and not verdict.mistakes and "the channels inside" in verdict.computes, verdict
    assert verdict.stage == "scores"


@pytest.mark.parametrize(
    ("layer", "name"), [(OfChannelsJoinedWrongly, "heads_merged_wrong"), (OfChannelsDown, "softmax_over_queries")]
)
def test_a_mistake_among_channels_is_named(layer: type[nn.Module], name: str) -> None:
    assert attn_exp.check(layer, quick=True).mistakes == (name,)
