"""Heads cut with a view alone, values that no matrix makes, and no softmax, where a layer is seen from inside."""

from __future__ import annotations

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import Tensor, nn


def test_keys_and_values_cut_with_a_view_are_named_where_one_token_alone_asks() -> None:
    class OfFirst(nn.Module):
        is_right = False

        def __init__(self, dim: int, num_heads: int = 4) -> None:
            super().__init__()
            self.num_heads, self.size = num_heads, dim // num_heads
            self.q, self.k, self.v, self.proj = (nn.Linear(dim, dim) for _ in range(4))

        def cut(self, rows: Tensor) -> Tensor:
            if self.is_right:
                return rows.view(*rows.shape[:2], self.num_heads, self.size).transpose(1, 2)
            return rows.reshape(len(rows), self.num_heads, rows.shape[1], self.size)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.cut(self.q(x[:, 0]).unsqueeze(1)), self.cut(self.k(x)), self.cut(self.v(x))
            mixed: Tensor = (q @ k.mT * self.size**-0.5).softmax(-1) @ v
            made: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
            return made

    class RightOfFirst(OfFirst):
        is_right = True

    verdict = attn_exp.check(OfFirst)
    assert verdict.mistakes == ("heads_not_transposed",), verdict
    right = attn_exp.check(RightOfFirst)
    assert right.passed, right


def test_queries_alone_cut_with_a_view_are_named_where_keys_are_of_fewer_tokens() -> None:
    class Reduced(nn.Module):
        def __init__(self, dim: int, num_heads: int = 4) -> None:
            super().__init__()
            self.num_heads, self.size = num_heads, dim // num_heads
            self.q, self.kv, self.norm, self.proj = (
                nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.LayerNorm(dim), nn.Linear(dim, dim),
            )  # fmt: skip

        def forward(self, x: Tensor) -> Tensor:
            b, n, c = x.shape
            q = self.q(x).reshape(b, self.num_heads, n, self.size)
            k, v = self.kv(self.norm(x)).reshape(b, n, 2, self.num_heads, self.size).permute(2, 0, 3, 1, 4)
            mixed = (q @ k.mT * self.size**-0.5).softmax(-1) @ v
            made: Tensor = self.proj(mixed.transpose(1, 2).reshape(b, n, c))
            return made

    verdict = attn_exp.check(Reduced)
    assert verdict.mistakes == ("heads_not_transposed",), verdict


def test_values_that_are_x_itself_are_named_where_their_matrix_is_made() -> None:
    class Unmade(nn.Module):
        def __init__(self, dim: int, num_heads: int = 4) -> None:
            super().__init__()
            self.num_heads = num_heads
            self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(dim, dim) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
                       for each in (self.q_proj(x), self.k_proj(x), x))  # fmt: skip
            made: Tensor = self.o_proj(
                (torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v).transpose(1, 2).flatten(2)
            )
            return made

    verdict = attn_exp.check(Unmade)
    assert verdict.mistakes == ("projections_unused",), verdict


def test_weights_without_a_softmax_are_seen_where_values_stand_before_them() -> None:
    class OfImage(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.norm = nn.GroupNorm(1, channels)
            self.q, self.k, self.v, self.out = (nn.Conv2d(channels, channels, 1) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(x)
            q, k, v = (make(y).flatten(2) for make in (self.q, self.k, self.v))
            weights = q.mT @ k * x.shape[1] ** -0.5
            made: Tensor = x + self.out((v @ weights.mT).view_as(x))
            return made

    verdict = attn_exp.check(OfImage)
    assert verdict.mistakes == ("no_softmax",), verdict


def test_the_first_token_of_several_is_no_frame_of_a_video() -> None:
    class OfFirst(nn.Module):
        """How many tokens there are is left to the view: so a video goes through too, where it has one frame."""

        def __init__(self, dim: int, num_heads: int = 4) -> None:
            super().__init__()
            self.num_heads, self.size = num_heads, dim // num_heads
            self.q, self.k, self.v, self.proj = (nn.Linear(dim, dim) for _ in range(4))

        def cut(self, rows: Tensor) -> Tensor:
            return rows.view(len(rows), -1, self.num_heads, self.size).transpose(1, 2)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.cut(self.q(x[:, :1])), self.cut(self.k(x)), self.cut(self.v(x))
            mixed: Tensor = (q @ k.mT * self.size**-0.5).softmax(-1) @ v
            made: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
            return made

    verdict = attn_exp.check(OfFirst)
    assert verdict.passed, verdict
