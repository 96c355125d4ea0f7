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


class OfStations(nn.Module):
    """Stations of a road attend to each other at each time: all three inputs lie as `[b n t c]`."""

    def __init__(self, embed_size: int, heads: int, root: float | None = None) -> None:
        super().__init__()
        self.heads, self.root = heads, root or (embed_size // heads) ** 0.5
        self.q, self.k, self.v, self.o = (nn.Linear(embed_size, embed_size) for _ in range(4))

    def forward(self, input_Q: Any, input_K: Any, input_V: Any) -> Any:
        b, n, t, c = input_Q.shape
        given = ((self.q, input_Q), (self.k, input_K), (self.v, input_V))
        q, k, v = (net(one).view(b, n, t, self.heads, -1).transpose(1, 3) for net, one in given)
        mixed = (q @ k.mT / self.root).softmax(-1) @ v
        return self.o(mixed.transpose(1, 3).reshape(b, n, t, c))


class OfGrids(OfStations):
    """What its keys and values are made of has names that tell nothing."""

    def forward(self, x: Any, left: Any, right: Any) -> Any:
        return super().forward(x, left, right)


@pytest.mark.parametrize("layer", [OfStations, OfGrids])
def test_a_memory_may_lie_as_the_image_does(layer: type[OfStations]) -> None:
    assert attn_exp.check(layer(24, 3), quick=True).passed
    assert attn_exp.check(layer(24, 3, 24**0.5), quick=True).mistakes == ("scale_by_sqrt_d_model",)
