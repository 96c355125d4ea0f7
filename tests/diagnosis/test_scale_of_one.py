"""Layers that scale nothing and need not: they norm their queries and keys, or add a bias for each distance."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")


def turned(x: Any) -> Any:
    """Return heads `[b h t d]` turned by their places, halves of a head together."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    low, high = x[..., :half], x[..., half:]
    return torch.cat([low * angles.cos() - high * angles.sin(), high * angles.cos() + low * angles.sin()], -1)


class Normed(torch.nn.Module):  # type: ignore[name-defined] # torch may be missing
    """Rotary attention that norms queries and keys, and multiplies their product by nothing."""

    is_normed = True

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads, self.size = num_heads, dim // num_heads
        self.q, self.k, self.v, self.o = (torch.nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.q_norm, self.k_norm = (
            torch.nn.RMSNorm(self.size) if self.is_normed else torch.nn.Identity() for _ in range(2)
        )

    def forward(self, x: Any) -> Any:
        q, k, v = (side(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in (self.q, self.k, self.v))
        q, k = turned(self.q_norm(q)), turned(self.k_norm(k))
        return self.o((torch.softmax(q @ k.mT, -1) @ v).transpose(1, 2).flatten(2))


class Plain(Normed):
    is_normed = False


class OfDistances(torch.nn.Module):  # type: ignore[name-defined] # torch may be missing
    """Attention that may be given a bias for each distance, as the layers of T5 behind the first are."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads = num_heads
        self.q, self.k, self.v, self.o = (torch.nn.Linear(dim, dim, bias=False) for _ in range(4))

    def forward(self, x: Any, position_bias: Any = None) -> Any:
        q, k, v = (side(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in (self.q, self.k, self.v))
        scores = q @ k.mT
        scores = scores if position_bias is None else scores + position_bias
        return self.o((torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("kind", [Normed, OfDistances])
def test_such_a_layer_is_right_with_a_scale_of_1(kind: type[Any]) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert not verdict.is_wrong and verdict.right_under == "scale=1", verdict


def test_any_other_that_scales_nothing_has_lost_its_scale() -> None:
    verdict = attn_exp.check(Plain, quick=True)
    assert verdict.mistakes == ("no_scale",), verdict
