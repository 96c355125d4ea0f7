"""What is seen inside a layer names several mistakes at once, and those that its answers alone do not show."""

import math
from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch")
import torch
from torch import nn


class Heads(nn.Module):
    """Right, with a gate of its own behind it, so that its answers are those of no plain layer."""

    def __init__(self, width: int, heads: int, kv_heads: int | None = None) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, kv_heads or heads, width // heads
        self.query, self.key, self.value = (
            nn.Linear(width, count * self.size, bias=False) for count in (heads, self.groups, self.groups)
        )
        self.gate, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def cut(self, side: Any, count: int) -> Any:
        return side.view(*side.shape[:2], count, self.size).transpose(1, 2)

    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.transpose(-1, -2) / math.sqrt(self.size)

    def weigh(self, scores: Any) -> Any:
        return scores.softmax(-1)

    def share(self, side: Any) -> Any:
        return side.repeat_interleave(self.heads // self.groups, 1)

    def sides(self, x: Any) -> tuple[Any, Any, Any]:
        return self.query(x), self.key(x), self.value(x)

    def forward(self, x: Any) -> Any:
        q, k, v = self.sides(x)
        q, k, v = self.cut(q, self.heads), self.share(self.cut(k, self.groups)), self.share(self.cut(v, self.groups))
        mixed = (self.weigh(self.scores(q, k)) @ v).transpose(1, 2).flatten(2)
        return self.out(mixed) * torch.cos(self.gate(x))


class WideAndOverQueries(Heads):
    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.transpose(-1, -2) / math.sqrt(self.size * self.heads)

    def weigh(self, scores: Any) -> Any:
        return scores.softmax(-2)


class Turned(Heads):
    def weigh(self, scores: Any) -> Any:
        return scores.softmax(-1).transpose(-1, -2)


class Eighth(Heads):
    """By 8, which is the size of a head only by chance."""

    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.transpose(-1, -2) / 8


class OfOneMatrix(Heads):
    def sides(self, x: Any) -> tuple[Any, Any, Any]:
        return self.query(x), self.query(x), self.value(x)


class InTurns(Heads):
    def share(self, side: Any) -> Any:
        return side.repeat(1, self.heads // self.groups, 1, 1)


class OfAllEntries(Heads):
    """The tokens of all entries of a batch are keys of each other."""

    def forward(self, x: Any) -> Any:
        return super().forward(x.flatten(0, 1)[None]).view(x.shape)


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        (OfAllEntries, {"batch_mixed"}), (Heads, set()),
        (WideAndOverQueries, {"scale_by_sqrt_d_model", "softmax_over_queries"}),
        (Turned, {"weights_transposed"}), (Eighth, {"scale_fixed"}), (InTurns, {"kv_heads_tiled"}),
        (OfOneMatrix, {"keys_from_queries"}),
    ],
)  # fmt: skip
def test_mistakes_are_named_by_what_is_seen_inside(layer: type[nn.Module], names: set[str]) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert set(verdict.mistakes) == names and verdict.passed is not bool(names), verdict


class OverOneSide(nn.Module):
    """An image: the softmax runs along its rows alone, and the values of all points are summed."""

    def __init__(self, dim: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)

    def forward(self, x: Any) -> Any:
        b, h, w, _ = x.shape
        q, k, v = self.qkv(x).view(b, h * w, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).view(b, self.heads, h * w, h, w)
        mixed = scores.softmax(-1).flatten(3) @ v
        return self.out(mixed.transpose(1, 2).reshape(b, h, w, -1))


def test_an_image_has_rows_and_columns_inside_too() -> None:
    verdict = attn_exp.check(OverOneSide, quick=True)
    assert not verdict.passed and "do not sum to 1" in str(verdict), verdict
    assert "values and the sums of weights are fine" not in verdict.computes
