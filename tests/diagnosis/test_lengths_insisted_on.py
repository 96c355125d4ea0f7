"""Layers that insist on lengths in their code, are told sizes by words of their own, or take a second input `b`."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch


class Sides(torch.nn.Module):
    """What makes queries of one input and keys and values of the other, or of one."""

    def __init__(self, own: int, other: int, inner: int, out: int) -> None:
        super().__init__()
        self.q, self.k = torch.nn.Linear(own, inner), torch.nn.Linear(other, inner)
        self.v = torch.nn.Linear(other, out)

    def attend(self, x: Any, other: Any) -> Any:
        return (self.q(x) @ self.k(other).mT / self.q.out_features**0.5).softmax(-1) @ self.v(other)


class OfWidth(Sides):
    def __init__(self) -> None:
        super().__init__(45, 45, 30, 45)

    def forward(self, x: Any) -> Any:
        assert x.shape[-1] == 45
        return self.attend(x, x)


class OfTokens(Sides):
    def __init__(self, dim: int) -> None:
        super().__init__(dim, dim, dim, dim)

    def forward(self, x: Any) -> Any:
        _, tokens, _ = x.shape
        assert tokens == 15
        return self.attend(x, x)


class OfBoth(Sides):
    """Nothing is said in its error, and the sizes stand in one test."""

    def __init__(self, qk_depth: int = 20) -> None:
        super().__init__(45, 45, qk_depth, 45)

    def forward(self, x: Any) -> Any:
        if tuple(x.shape[1:]) != (15, 45):
            raise ValueError
        return self.attend(x, x)


class ToldItsWidth(Sides):
    """It is made of a width, and its call insists on one."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, dim, dim, dim)

    def forward(self, x: Any) -> Any:
        assert x.shape[2] == 40, "features"
        return self.attend(x, x)


class OfDepth(torch.nn.Module):
    """What it calls depth is no number of a layer."""

    def __init__(self, in_feat: int, depth: int, heads: int) -> None:
        super().__init__()
        assert depth % heads == 0
        self.heads = heads
        self.qkv, self.out = torch.nn.Linear(in_feat, 3 * depth), torch.nn.Linear(depth, in_feat)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))


class OfTwo(Sides):
    def __init__(self, a_width: int, b_width: int, attention_depth: int) -> None:
        super().__init__(a_width, b_width, attention_depth, a_width)

    def forward(self, a: Any, b: Any) -> Any:
        return self.attend(a, b)


class OfTwoUnscaled(OfTwo):
    def attend(self, x: Any, other: Any) -> Any:
        return (self.q(x) @ self.k(other).mT).softmax(-1) @ self.v(other)


@pytest.mark.parametrize("layer", [OfWidth, OfTokens, OfBoth, ToldItsWidth, OfDepth, OfTwo])
def test_lengths_that_code_insists_on_are_tried(layer: Any) -> None:
    verdict = attn_exp.check(layer)
    assert verdict.passed, verdict


def test_a_second_input_of_any_name_is_what_is_attended_to() -> None:
    assert attn_exp.check(OfTwoUnscaled).mistakes == ("no_scale",)
    assert not any("cross" in said for said in attn_exp.check(OfTwo).not_asked)
