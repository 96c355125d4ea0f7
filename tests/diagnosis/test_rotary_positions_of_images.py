"""Queries and keys that are turned by their row in one half of their numbers, and by their column in the other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import attn_exp  # noqa: E402
from attn_exp.diagnosis.inside.sides_inside import grids, tells_steps_alone  # noqa: E402


class OfRows(nn.Module):
    """Takes `[b n c]` of a square."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(dim, dim) for _ in range(4))

    def places(self, h: int, w: int) -> tuple[Any, Any]:
        return torch.arange(h * w) // w, torch.arange(h * w) % w

    def turned(self, heads: Any, h: int, w: int) -> Any:
        halves, said = heads.chunk(2, dim=-1), []
        for half, places in zip(halves, self.places(h, w), strict=True):
            count = half.shape[-1] // 2
            angles = places[:, None] * 100.0 ** (-torch.arange(count) / count)
            a, b = half[..., :count], half[..., count:]
            said += [a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()]
        return torch.cat(said, dim=-1)

    def scale(self, q: Any) -> float:
        return 1 / math.sqrt(q.shape[-1])

    def attend(self, x: Any, h: int, w: int) -> Any:
        q, k, v = (side(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
                   for side in (self.to_q, self.to_k, self.to_v))  # fmt: skip
        scores = self.turned(q, h, w) @ self.turned_keys(k, h, w).transpose(-1, -2) * self.scale(q)
        return self.to_out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def turned_keys(self, heads: Any, h: int, w: int) -> Any:
        return self.turned(heads, h, w)

    def forward(self, x: Any) -> Any:
        h = math.isqrt(x.shape[1])
        if x.shape[1] % h:
            raise ValueError
        return self.attend(x, h, x.shape[1] // h)


class OfImage(OfRows):
    """Takes `[b h w c]`."""

    def forward(self, x: Any) -> Any:
        return self.attend(x.flatten(1, 2), *x.shape[1:3]).unflatten(1, x.shape[1:3])


class Unscaled(OfImage):
    def scale(self, q: Any) -> float:
        return 1.0


class KeysTheOtherWay(OfImage):
    def turned_keys(self, heads: Any, h: int, w: int) -> Any:
        return self.turned(heads, w, h)


@pytest.mark.parametrize("kind", [OfRows, OfImage])
def test_rotary_positions_of_two_dimensions_are_right_and_said(kind: Any) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.passed and "rotary positions in two dimensions" in verdict.computes, verdict


def test_a_mistake_beside_them_is_named() -> None:
    verdict = attn_exp.check(Unscaled, quick=True)
    assert verdict.mistakes == ("no_scale",) and "rotary positions in two dimensions" in verdict.computes, verdict


def test_keys_turned_as_those_of_an_image_on_its_side_are_not_right() -> None:
    verdict = attn_exp.check(KeysTheOtherWay, quick=True)
    assert not verdict.passed and not verdict.mistakes and verdict.stage == "q", verdict


def test_tokens_may_lie_in_each_grid_of_several_rows_and_columns_after_none_or_one() -> None:
    assert list(grids(7)) == [(1, (3, 2)), (1, (2, 3))]
    assert list(grids(9)) == [(0, (3, 3)), (1, (4, 2)), (1, (2, 4))]


def test_a_number_for_each_step_in_a_grid_tells_nothing_else() -> None:
    rows, columns = np.unravel_index(np.arange(6), (2, 3))
    scores = (10 * (rows[:, None] - rows) + (columns[:, None] - columns))[None].astype(float)
    assert tells_steps_alone(scores, (2, 3)) and not tells_steps_alone(scores, (3, 2))
    assert not tells_steps_alone(scores, (6,))
