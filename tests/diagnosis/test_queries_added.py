"""Layers that add queries to what their heads answer, and those that make sides of the wrong one of two inputs."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import nn


class Added(nn.Module):
    """A block of sets: queries are added to the answer of the heads, and a feedforward layer belongs to it."""

    def __init__(self, dim: int, heads: int, norms: bool = False) -> None:
        super().__init__()
        self.heads, self.root = heads, (dim // heads) ** 0.5
        self.ask, self.key, self.value, self.last = (nn.Linear(dim, dim) for _ in range(4))
        self.first_norm, self.other_norm = (nn.LayerNorm(dim) if norms else nn.Identity() for _ in range(2))

    def forward(self, x: Any, y: Any) -> Any:
        sides = (self.ask(x), self.key(y), self.value(y))
        q, k, v = (side.unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in sides)
        context = (q @ k.mT / self.root).softmax(-1) @ v
        said = self.first_norm((q + context).transpose(1, 2).flatten(2))
        return self.other_norm(said + self.last(said).relu())


class AddedAndNormed(Added):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads, norms=True)


class AddedByWidth(Added):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.root = dim**0.5


class AddedOfItself(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.block = Added(dim, heads)

    def forward(self, x: Any) -> Any:
        return self.block(x, x)


class OfTwo(nn.Module):
    """Attention of x and a memory; `of_x` says which sides are made of x."""

    of_x = "q"

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.sides = nn.ModuleDict({side: nn.Linear(dim, dim) for side in "qkv"})
        self.last = nn.Linear(dim, dim)

    def forward(self, x: Any, context: Any) -> Any:
        made = (self.sides[side](x if side in self.of_x else context) for side in "qkv")
        q, k, v = (side.unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in made)
        said = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return self.last(said.transpose(1, 2).flatten(2))


class ValuesAlone(OfTwo):
    of_x = "v"


class KeysOfX(OfTwo):
    of_x = "qk"


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        (Added, ()),
        (AddedAndNormed, ()),
        (AddedOfItself, ()),
        (AddedByWidth, ("scale_by_sqrt_d_model",)),
        (OfTwo, ()),
        (ValuesAlone, ("values_from_queries",)),
        (KeysOfX, ("keys_from_queries",)),
    ],
)
def test_what_stands_around_the_heads_and_what_sides_are_made_of_is_seen(layer: Any, names: tuple[str, ...]) -> None:
    assert attn_exp.check(layer).mistakes == names


class OfAnything(nn.Module):
    """It makes queries, keys and values of x where nobody gives them."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.packed, self.last = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Any = None, q: Any = None, k: Any = None, v: Any = None) -> Any:
        if q is None or k is None or v is None:
            q, k, v = self.packed(x).chunk(3, -1)
        q, k, v = (side.unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in (q, k, v))
        said = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return self.last(said.transpose(1, 2).flatten(2))


def test_x_alone_is_given_where_queries_may_be_projected_already() -> None:
    verdict = attn_exp.check(OfAnything)
    assert verdict.passed
    assert "three matrices" not in verdict.findings[0].said


class ValuesFirst(nn.Module):
    """It takes values before queries, projected by nobody."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.last = heads, nn.Linear(dim, dim)

    def forward(self, values: Any, keys: Any, query: Any) -> Any:
        q, k, v = (side.unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in (query, keys, values))
        said = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return self.last(said.transpose(1, 2).flatten(2))


def test_inputs_that_are_projected_already_are_told_by_their_names() -> None:
    assert attn_exp.check(ValuesFirst).passed


def lengths_lost(query: Any, key: Any, value: Any, valid_len: Any = None) -> Any:
    scores = torch.bmm(query, key.transpose(1, 2)) / query.shape[-1] ** 0.5
    if valid_len is not None:
        for row, length in zip(scores.clone(), valid_len, strict=True):
            row[:, int(length) :] = -1e6
    return torch.bmm(scores.softmax(-1), value)


def lengths_kept(query: Any, key: Any, value: Any, valid_len: Any = None) -> Any:
    scores = torch.bmm(query, key.transpose(1, 2)) / query.shape[-1] ** 0.5
    for row, length in zip(scores, [] if valid_len is None else valid_len, strict=valid_len is not None):
        row[:, int(length) :] = -1e6
    return torch.bmm(scores.softmax(-1), value)


def test_lengths_of_entries_are_asked_where_there_are_no_heads() -> None:
    lost = attn_exp.check(lengths_lost)
    assert lost.mistakes == ("mask_ignored",)
    assert lost.smallest is not None
    assert "sizes=" not in str(lost)
    assert attn_exp.check(lengths_kept).passed
