"""Layers that take few tokens, hold plain tensors as matrices, or have names of their own for what hides tokens."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch

block_size, wide, most = 8, 32, 8


class Head(torch.nn.Module):
    """One causal head for a few tokens: its file says how many, and how wide x is."""

    seen: torch.Tensor

    def __init__(self, head_size: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (torch.nn.Linear(wide, head_size, bias=False) for _ in range(3))
        self.register_buffer("seen", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x: Any) -> Any:
        rows, width = x.shape[1:]
        scores = self.query(x) @ self.key(x).mT * width**-0.5
        return scores.masked_fill(self.seen[:rows, :rows] == 0, -torch.inf).softmax(-1) @ self.value(x)


class FewTokens(Head):
    """The same with the right scale and a mask of a size that nobody outside knows."""

    def __init__(self, head_size: int) -> None:
        super().__init__(head_size)
        self.seen = torch.tril(torch.ones(most, most))

    def forward(self, x: Any) -> Any:
        scores = self.query(x) @ self.key(x).mT * self.key.out_features**-0.5
        rows = x.shape[1]
        return scores.masked_fill(self.seen[:rows, :rows] == 0, -torch.inf).softmax(-1) @ self.value(x)


class OfTensors(torch.nn.Module):
    """Matrices that were drawn, and that nobody made parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.w_query, self.w_key, self.w_value = (torch.rand(32, 32) for _ in range(3))

    def weights(self, x: Any, hidden: Any) -> Any:
        scores = x @ self.w_query @ (x @ self.w_key).mT / 32**0.5
        return (scores + hidden[:, None]).softmax(-1)

    def forward(self, x: Any, token_masks: Any) -> Any:
        return self.weights(x, (1 - token_masks * 1.0) * -1000) @ x @ self.w_value


class MaskLost(OfTensors):
    def forward(self, x: Any, token_masks: Any) -> Any:
        return super().forward(x, torch.ones_like(token_masks))


class OfPadding(OfTensors):
    """What hides filler is called `pad` alone, and is no None."""

    def forward(self, x: Any, pad: Any) -> Any:
        return self.weights(x, torch.where(pad == 0, -1e9, 0.0)) @ x @ self.w_value


def test_a_mask_of_few_tokens_is_made_larger_or_few_are_asked() -> None:
    verdict = attn_exp.check(Head, quick=True)
    assert verdict.mistakes == ("scale_by_sqrt_d_model",), verdict
    assert "every number" not in str(verdict)
    verdict = attn_exp.check(FewTokens, quick=True)
    assert verdict.right_under == "mask=causal"
    assert "with 7 tokens, not every number is taken" in str(verdict)


@pytest.mark.parametrize("layer", [OfTensors, OfPadding])
def test_drawn_tensors_are_matrices_and_masks_are_known_by_parts_of_names(layer: Any) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.passed, verdict
    assert "what token_masks" not in str(verdict) and "what pad" not in str(verdict)


def test_a_mask_that_a_call_needs_and_that_changes_nothing_is_a_mistake() -> None:
    assert attn_exp.check(MaskLost, quick=True).mistakes == ("mask_ignored",)
