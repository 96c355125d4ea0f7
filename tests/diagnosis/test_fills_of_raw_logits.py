"""Logits that are used as weights, or divided by their sum: what is filled in where a mask forbids stays in them."""

from __future__ import annotations

import numpy as np
import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch

FILLS = [-np.inf, -1e9, -3e7, float(np.finfo(np.float64).min)]


def logits(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    scores: torch.Tensor = torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    return scores


@pytest.mark.long
@pytest.mark.parametrize("number", FILLS)
def test_logits_as_weights_are_one_mistake_whatever_fills_in_behind_a_mask(number: float) -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        scores = logits(q, k)
        return (scores if mask is None else scores.masked_fill(~mask, number)) @ v

    verdict = attn_exp.check(attend)
    assert verdict.mistakes == ("no_softmax",), verdict


@pytest.mark.parametrize("number", [FILLS[0], FILLS[1], FILLS[3]])
def test_logits_over_their_sum_are_one_mistake_whatever_fills_in_behind_a_mask(number: float) -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        scores = logits(q, k)
        scores = scores if mask is None else scores.masked_fill(~mask, number)
        return scores / scores.sum(dim=-1, keepdim=True) @ v

    verdict = attn_exp.check(attend)
    assert verdict.mistakes == ("sum_normalized",), verdict


def scale_divides(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None = None) -> torch.Tensor:
    scores = torch.matmul(q, k.transpose(-1, -2)) / (q.shape[-1] ** 0.5 if scale is None else scale)
    return scores.softmax(dim=-2) @ v


def test_a_scale_that_divides_is_known_beside_a_mistake_by_what_it_is_by_default() -> None:
    verdict = attn_exp.check(scale_divides)
    assert verdict.mistakes == ("softmax_over_queries",), verdict
