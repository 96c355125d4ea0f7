"""Attention without matrices: of x alone, or of queries and of what is attended to; and answers that say nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch


def of_itself(x: Any) -> Any:
    scores = x @ x.T / np.sqrt(x.shape[-1])
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ x


def of_one_query(decoded: Any, encoded: Any) -> Any:
    weights = torch.softmax(encoded @ decoded / decoded.shape[0] ** 0.5, 0)
    return weights @ encoded, weights


class KeysBefore(torch.nn.Module):
    """What is attended to comes first, then one query of each entry."""

    def forward(self, outputs: Any, state: Any) -> Any:
        scores = torch.einsum("bd,bsd->bs", state, outputs) / state.shape[-1] ** 0.5
        return torch.einsum("bs,bsd->bd", scores.softmax(-1), outputs)


class OfStates(torch.nn.Module):
    """Tokens lie first, and keys may be hidden."""

    def forward(self, state: Any, outputs: Any, mask: Any = None) -> Any:
        scores = torch.einsum("tbd,sbd->bts", state, outputs) / state.shape[-1] ** 0.5
        scores = scores if mask is None else scores.masked_fill(~mask, -1e9)
        return torch.einsum("bts,sbd->tbd", scores.softmax(-1), outputs)


class Unscaled(torch.nn.Module):
    def forward(self, state: Any, outputs: Any) -> Any:
        return torch.softmax(state @ outputs.mT, -1) @ outputs


def normed(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)


@pytest.mark.parametrize("attention", [of_itself, of_one_query, KeysBefore, OfStates])
def test_values_may_be_the_keys_themselves(attention: Any) -> None:
    verdict = attn_exp.check(attention, quick=True)
    assert verdict.passed and "its inputs themselves" in str(verdict), verdict
    assert ("cross attention (it takes one input)" in str(verdict)) == (attention is of_itself)
    assert ("a mask for each entry" in str(verdict)) == (attention is OfStates)


def test_a_mistake_without_matrices_is_named() -> None:
    assert attn_exp.check(Unscaled, quick=True).mistakes == ("no_scale",)
    assert attn_exp.check(Unscaled, "scale=false", quick=True).passed


def test_what_makes_no_row_of_the_others_is_no_attention() -> None:
    with pytest.raises(attn_exp.UserError, match="normed takes x"):
        attn_exp.check(normed, quick=True)


def of_a_flag(queries: Any, keys: Any, values: Any, mask: Any, crossing: Any) -> Any:
    """Its mask is of ones and zeros, for one entry and one head."""
    if not crossing:
        return queries * 0.0
    scores = mask * (queries @ keys.T) / queries.shape[-1] ** 0.5 - 1e9 * (1.0 - mask)
    return torch.softmax(scores, 1) @ values


def values_unless_told(q: Any, k: Any, v: Any, attend: Any) -> Any:
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v if attend else v


@pytest.mark.parametrize("attention", [of_a_flag, values_unless_told])
def test_an_answer_of_zeros_or_of_an_input_is_asked_otherwise(attention: Any) -> None:
    verdict = attn_exp.check(attention, quick=True)
    assert verdict.passed, verdict


class OfEachOther(torch.nn.Module):
    """Two texts attend to each other, each with a mask of its own that is True for filler."""

    fill = -torch.inf

    def forward(self, a: Any, a_mask: Any, b: Any, b_mask: Any) -> Any:
        scores = a @ b.mT / a.shape[-1] ** 0.5
        of_a = torch.softmax(scores.masked_fill(b_mask[:, None], self.fill), -1) @ b
        of_b = torch.softmax(scores.mT.masked_fill(a_mask[:, None], self.fill), -1) @ a
        return of_a.masked_fill(a_mask[..., None], 0.0), of_b.masked_fill(b_mask[..., None], 0.0)


class OfEachOtherFilledLittle(OfEachOther):
    fill = -1.0


def test_each_of_two_inputs_may_have_a_mask_that_begins_with_its_name() -> None:
    assert attn_exp.check(OfEachOther, quick=True).right_under == "convention=torch_mha"
    verdict = attn_exp.check(OfEachOtherFilledLittle, quick=True)
    assert verdict.mistakes == ("mask_small_fill",) and "with convention=torch_mha" in verdict.computes, verdict
