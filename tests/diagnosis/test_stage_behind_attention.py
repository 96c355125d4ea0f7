"""Where all is right inside a layer, and its answer is not, it is the output that differs first."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")


class OfADiagonal(torch.nn.Module):  # type: ignore[misc, name-defined] # torch may be missing
    """Its last product takes the diagonal of the matrix: each number is multiplied by one, and none are mixed."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        size = (num_heads, d_model, d_model // num_heads)
        self.w_q, self.w_k, self.w_v = (torch.nn.Parameter(torch.randn(size) / d_model**0.5) for _ in "qkv")
        self.w_o = torch.nn.Parameter(torch.randn(d_model, d_model))

    def forward(self, x: Any) -> Any:
        q, k, v = (torch.einsum("btm,hmd->bhtd", x, side) for side in (self.w_q, self.w_k, self.w_v))
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        weights = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(later, -torch.inf).softmax(-1)
        return torch.einsum("btm,mm->btm", (weights @ v).transpose(1, 2).flatten(2), self.w_o)


def test_a_mistake_behind_right_attention_is_one_of_the_output() -> None:
    verdict = attn_exp.check(OfADiagonal, "mask=causal", quick=True)
    assert not verdict.passed and verdict.mistakes == ("projection_diagonal",), verdict
