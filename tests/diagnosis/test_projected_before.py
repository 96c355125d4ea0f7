"""Layers that take queries, keys and values projected already: a matrix is put before each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.diagnosis.reading.read_layers import fit

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


class HeadByHead(nn.Module):
    """Each head has small matrices of its own for its part of queries, keys and values."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.root = heads, (dim // heads) ** 0.5
        self.q, self.k, self.v = (
            nn.ModuleList(nn.Linear(dim // heads, dim // heads, bias=False) for _ in range(heads)) for _ in range(3)
        )
        self.last = nn.Linear(dim, dim)

    def cut(self, one: Any) -> Any:
        return one.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, query: Any, key: Any, value: Any) -> Any:
        q, k, v = (self.cut(one) for one in (query, key, value))
        answers = []
        for at in range(self.heads):
            scores = self.q[at](q[:, at]) @ self.k[at](k[:, at]).mT / self.root
            answers.append(scores.softmax(-1) @ self.v[at](v[:, at]))
        return self.last(torch.cat(answers, -1))


class HeadByHeadViewed(HeadByHead):
    def cut(self, one: Any) -> Any:
        return one.reshape(one.shape[0], self.heads, -1, one.shape[2] // self.heads)


def test_matrices_are_cut_into_so_many_heads_as_divide_them_alone() -> None:
    arrays = {f"W_{side}": np.zeros((8, 8)) for side in "qkv"}
    assert [(heads, groups) for heads in (1, 2, 3, 4) for groups in (1, 2, 4) if fit(arrays, heads, groups)] == [
        (1, 1), (2, 2), (4, 4)]  # fmt: skip


@pytest.mark.long
def test_parts_of_tokens_taken_for_tokens_are_seen_before_small_matrices() -> None:
    right, wrong = attn_exp.check(HeadByHead(24, 3), quick=True), attn_exp.check(HeadByHeadViewed, quick=True)
    assert right.passed, right
    assert wrong.mistakes == ("heads_not_transposed",), wrong
