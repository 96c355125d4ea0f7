"""Images whose points attend to the words of a text: x and what keys are made of do not lie alike."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
from torch import nn


class Illustrated(nn.Module):
    """Queries are made of points, keys and values of words; nothing but the answer tells what `words` are."""

    axis = -1

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads, self.o = heads, nn.Conv2d(channels, channels, 1)
        self.q: nn.Module = nn.Conv2d(channels, channels, 1)
        self.k, self.v = nn.Linear(channels, channels), nn.Linear(channels, channels)

    def forward(self, picture: Any, words: Any) -> Any:
        return self.attended(picture, words)

    def attended(self, picture: Any, words: Any) -> Any:
        b, c, h, w = picture.shape
        q = self.q(picture).view(b, self.heads, c // self.heads, h * w).mT
        k, v = (net(words).view(b, -1, self.heads, c // self.heads).transpose(1, 2) for net in (self.k, self.v))
        shares = (q @ k.mT / (c // self.heads) ** 0.5).softmax(self.axis)
        return picture + self.o((shares @ v).mT.reshape(b, c, h, w))


class OfContext(Illustrated):
    def forward(self, picture: Any, context: Any) -> Any:
        return self.attended(picture, context)


class OfAllEntries(Illustrated):
    """Its words are those of every picture."""

    def forward(self, picture: Any, words: Any) -> Any:
        return self.attended(picture, words.expand(len(picture), -1, -1))


class NormedPicture(Illustrated):
    """Its points are normed, and its words are not."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__(channels, heads)
        self.q = nn.Sequential(nn.GroupNorm(4, channels), self.q)


class DownThePoints(Illustrated):
    axis = -2


@pytest.mark.parametrize("layer", [Illustrated, OfContext, OfAllEntries, NormedPicture])
def test_points_attend_to_words(layer: type[nn.Module]) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.passed and any("keys of another input" in one.rung for one in verdict.findings), verdict


def test_a_mistake_among_points_and_words_is_named() -> None:
    assert attn_exp.check(DownThePoints, quick=True).mistakes == ("softmax_over_queries",)
