"""Modules whose projections are more than a matrix each: networks, convolutions of neighbours, normed weights."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import nn


class Tokens(nn.Module):
    """Heads of what three children make of x `[b t m]`, one of which `made_of` makes."""

    scale = True

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.dim = heads, dim
        self.first, self.second, self.third = (self.made_of(dim) for _ in range(3))
        self.last: nn.Module = nn.Linear(dim, dim)

    def made_of(self, dim: int) -> nn.Module:
        return nn.Linear(dim, dim)

    def sides(self, x: Any) -> Any:
        return self.first(x), self.second(x), self.third(x)

    def forward(self, x: Any) -> Any:
        q, k, v = (side.unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in self.sides(x))
        scores = self.hidden(q @ k.mT / (q.shape[-1] ** 0.5 if self.scale else 1.0))
        return self.last((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def hidden(self, scores: Any) -> Any:
        return scores


class OfNetworks(Tokens):
    """Each side is a network of two matrices."""

    def made_of(self, dim: int) -> nn.Module:
        return nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim), nn.Tanh())


class OfNetworksUnscaled(OfNetworks):
    scale = False


class Narrow(nn.Module):
    """What is added to a matrix goes through a narrow place."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.base, self.down, self.up = nn.Linear(dim, dim), nn.Linear(dim, 3, bias=False), nn.Linear(3, dim)

    def forward(self, x: Any) -> Any:
        return self.base(x) + self.up(self.down(x)) * 0.5


class OfSums(Tokens):
    def made_of(self, dim: int) -> nn.Module:
        return Narrow(dim)


class OfLatents(Tokens):
    """Keys and values share a narrow layer with a norm; x is normed before, and added after."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.norm, self.narrow, self.within = nn.LayerNorm(dim), nn.Linear(dim, dim // 2), nn.LayerNorm(dim // 2)
        self.wide = nn.Linear(dim // 2, 2 * dim)
        del self.second, self.third

    def sides(self, x: Any) -> Any:
        z = self.norm(x)
        return self.first(z), *self.wide(self.within(self.narrow(z))).chunk(2, -1)

    def forward(self, x: Any) -> Any:
        return x + super().forward(x)


class OfNormedMatrices(Tokens):
    """Each matrix is divided by its largest factor in each call, the last one too."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.last = self.made_of(dim)

    def made_of(self, dim: int) -> nn.Module:
        return nn.utils.spectral_norm(nn.Linear(dim, dim, bias=False))


class OfCrossed(OfNetworks):
    """Keys and values are of a second input."""

    def forward(self, x: Any, context: Any) -> Any:  # type: ignore[override]
        return super().forward((x, context))

    def sides(self, x: Any) -> Any:
        return self.first(x[0]), self.second(x[1]), self.third(x[1])


class OfNeighbours(Tokens):
    """A convolution of three tokens makes each side."""

    def made_of(self, dim: int) -> nn.Module:
        return nn.Conv1d(dim, dim, 3, padding=1)

    def sides(self, x: Any) -> Any:
        return (side(x.mT).mT for side in (self.first, self.second, self.third))


@pytest.mark.parametrize(
    "made", [OfNetworks, OfLatents, OfNormedMatrices, OfCrossed, OfNeighbours], ids=lambda made: made.__name__
)
def test_what_makes_a_side_may_be_more_than_a_matrix(made: type[nn.Module]) -> None:
    verdict = attn_exp.check(made)
    assert verdict.passed, str(verdict)


class Causal(OfNetworks):
    """Each query sees the keys up to its own."""

    def hidden(self, scores: Any) -> Any:
        return scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))


@pytest.mark.parametrize("made, names", [(Causal, ()), (OfNetworks, ("causal_ignored",))])
def test_a_causal_mask_that_is_asked_for_is_seen_inside(made: type[nn.Module], names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(made, "mask=causal")
    assert verdict.mistakes == names and verdict.passed == (not names), str(verdict)


def test_a_part_that_is_set_to_0_is_no_matrix_that_is_never_used() -> None:
    verdict = attn_exp.check(OfSums)
    assert verdict.passed and "up.weight set to 0" in str(verdict) and "never used" not in str(verdict)


def test_it_still_sees_what_is_wrong_behind_it() -> None:
    assert attn_exp.check(OfNetworksUnscaled).mistakes == ("no_scale",)


class Points(nn.Module):
    """An image attends to itself where each square of four points is one: right but for a scale of 1 over its root."""

    def __init__(self, ch: int, root: float = 0.5, pooled: bool = True) -> None:
        super().__init__()
        self.root, self.ch, self.pooled = root, ch, pooled
        self.theta, self.phi, self.g = (nn.utils.spectral_norm(nn.Conv2d(ch, ch // 4, 1)) for _ in range(3))
        self.o, self.gamma = nn.Conv2d(ch // 4, ch, 1), nn.Parameter(torch.zeros(()))

    def forward(self, x: Any) -> Any:
        q, k, v = self.theta(x), self.phi(x), self.g(x)
        if self.pooled:
            k, v = (nn.functional.max_pool2d(side, 2) for side in (k, v))
        k, v = k.flatten(2), v.flatten(2)
        weights = (q.flatten(2).mT @ k / (self.ch // 4) ** self.root).softmax(-1)
        return x + self.gamma * self.o((weights @ v.mT).mT.reshape(q.shape))


class PointsUnscaled(Points):
    def __init__(self, ch: int) -> None:
        super().__init__(ch, root=0.0)


class PooledInside(nn.Module):
    """The pools are children, each with its convolution, and what comes last ends in a norm that begins with 0."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.q = nn.Conv2d(channels, channels // 2, 1)
        pool = nn.MaxPool2d(2)
        self.k, self.v = (nn.Sequential(nn.Conv2d(channels, channels // 2, 1), pool) for _ in range(2))
        last = nn.BatchNorm2d(channels)
        self.w = nn.Sequential(nn.Conv2d(channels // 2, channels, 1), last)
        nn.init.zeros_(last.weight)

    def forward(self, x: Any) -> Any:
        q, k, v = (side(x).flatten(2) for side in (self.q, self.k, self.v))
        weights = (q.mT @ k / q.shape[1] ** 0.5).softmax(-1)
        return x + self.w((weights @ v.mT).mT.reshape(len(x), -1, *x.shape[2:]))


@pytest.mark.parametrize("made", [Points, PooledInside])
def test_images_whose_keys_are_pooled(made: type[nn.Module]) -> None:
    verdict = attn_exp.check(made)
    assert verdict.passed, str(verdict)


def test_an_image_without_a_scale_is_right_under_that() -> None:
    assert attn_exp.check(PointsUnscaled).right_under == "scale=1"


class WithOnePool(nn.Module):
    """Attention of images whose keys and values go through the same pool, one after the other."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.theta, self.phi = (nn.Conv2d(channels, channels, 1, bias=False) for _ in range(2))
        self.g, self.last = (nn.Conv2d(channels, channels, 1, bias=False) for _ in range(2))
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Any) -> Any:
        q, k, v = self.theta(x).flatten(2), self.pool(self.phi(x)).flatten(2), self.pool(self.g(x)).flatten(2)
        weights = (q.mT @ k / k.shape[1] ** 0.5).softmax(-1)
        return self.last((v @ weights.mT).reshape(x.shape))


class WithOnePoolUnscaled(WithOnePool):
    """The same without a scale."""

    def forward(self, x: Any) -> Any:
        q, k, v = self.theta(x).flatten(2), self.pool(self.phi(x)).flatten(2), self.pool(self.g(x)).flatten(2)
        return self.last((v @ (q.mT @ k).softmax(-1).mT).reshape(x.shape))


def test_one_pool_may_serve_two_projections() -> None:
    right, unscaled = attn_exp.check(WithOnePool, quick=True), attn_exp.check(WithOnePoolUnscaled, quick=True)
    assert right.passed and not right.right_under, right
    assert unscaled.right_under == "scale=1", unscaled
