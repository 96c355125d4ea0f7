"""A causal mask that a layer makes or keeps, and forgets."""

from __future__ import annotations

import math
from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch

LONGEST = 256


class OneHead(torch.nn.Module):
    seen: torch.Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.to_q, self.to_k, self.to_v = (torch.nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.register_buffer("seen", torch.tril(torch.ones(LONGEST, LONGEST)))

    def forward(self, x: Any) -> Any:
        scores = self.to_q(x) @ self.to_k(x).mT / math.sqrt(x.shape[-1])
        return torch.softmax(self.masked(scores), dim=-1) @ self.to_v(x)

    def masked(self, scores: Any) -> Any:
        return scores


class NotAssigned(OneHead):
    def masked(self, scores: Any) -> Any:
        scores.masked_fill(self.seen[: scores.shape[-1], : scores.shape[-1]] == 0, -math.inf)
        return scores


class ForLater(OneHead):
    trains_on_texts = False

    def masked(self, scores: Any) -> Any:
        if self.trains_on_texts:
            return scores.masked_fill(self.seen[: scores.shape[-1], : scores.shape[-1]] == 0, -math.inf)
        return scores


@pytest.mark.long
@pytest.mark.parametrize("kind", [OneHead, NotAssigned])
def test_a_causal_mask_that_nothing_is_made_of_is_named(kind: Any) -> None:
    assert attn_exp.check(kind, quick=True).mistakes == ("causal_ignored",)


def test_a_causal_mask_for_another_way_of_calling_is_no_mistake() -> None:
    verdict = attn_exp.check(ForLater, quick=True)
    assert verdict.outcome == "not verified" and not verdict.mistakes and "`seen`" in str(verdict), verdict
