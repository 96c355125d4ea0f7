"""Masks and sizes that stand beside one mistake: what is no mistake alone is none beside another."""

from __future__ import annotations

import math
from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch


class InTurns(torch.nn.Module):
    """Its keys and values are taken in turns by the heads that share them."""

    def __init__(self, dim: int, num_heads: int, num_kv_groups: int) -> None:
        super().__init__()
        self.num_heads, self.num_kv_groups, self.size = num_heads, num_kv_groups, dim // num_heads
        self.to_q = torch.nn.Linear(dim, dim)
        self.to_k = torch.nn.Linear(dim, num_kv_groups * self.size)
        self.to_v = torch.nn.Linear(dim, num_kv_groups * self.size)
        self.to_out = torch.nn.Linear(dim, dim)

    def forward(self, x: Any) -> Any:
        q, k, v = (side(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for side in (self.to_q, self.to_k, self.to_v))
        k, v = (side.repeat(1, self.num_heads // self.num_kv_groups, 1, 1) for side in (k, v))
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(self.size), dim=-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))


def test_a_class_that_is_told_how_many_groups_share_keys_is_asked_with_fewer() -> None:
    assert attn_exp.check(InTurns, quick=True).mistakes == ("kv_heads_tiled",)


class TurnedInSingle(torch.nn.Module):
    """Its angles are of float32, as is usual, and one of its two masks is filled in with nothing."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.to_qkv, self.to_out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)

    def forward(self, x: Any, pad_mask: Any = None, causal_mask: Any = None) -> Any:
        q, k, v = (side.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for side in self.to_qkv(x).chunk(3, dim=-1))
        scores = turned(q) @ turned(k).mT / math.sqrt(q.shape[-1])
        if causal_mask is not None:
            scores = scores.masked_fill(causal_mask[None, None], 0.0)
        if pad_mask is not None:
            scores = scores.masked_fill(pad_mask[:, None, None], -math.inf)
        return self.to_out((torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2))


def turned(side: Any) -> Any:
    half = side.shape[-1] // 2
    angles = torch.outer(torch.arange(side.shape[-2]).float(), 10000.0 ** -(torch.arange(half) / half))
    first, second = side.chunk(2, dim=-1)
    turns = angles.cos(), angles.sin()
    return torch.cat([first * turns[0] - second * turns[1], second * turns[0] + first * turns[1]], dim=-1)


@pytest.mark.long
def test_a_mask_is_judged_as_exactly_as_what_stands_beside_it() -> None:
    verdict = attn_exp.check(TurnedInSingle, "position=rope", quick=True)
    assert verdict.mistakes == ("mask_small_fill",) and verdict.where == "a mask is given", verdict


class ZerosBefore(torch.nn.Module):
    """Its mask takes the scores of earlier keys away, beside those of later ones."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.to_q, self.to_k, self.to_v = (torch.nn.Linear(dim, dim) for _ in range(3))

    def forward(self, x: Any) -> Any:
        scores = self.to_q(x) @ self.to_k(x).mT / math.sqrt(x.shape[-1])
        later = torch.full_like(scores, -math.inf).triu(1)
        return torch.softmax(scores.triu() + later, dim=-1) @ self.to_v(x)


@pytest.mark.long
def test_logits_that_are_one_number_beside_hidden_keys_are_no_causal_mask() -> None:
    verdict = attn_exp.check(ZerosBefore, quick=True)
    assert not verdict.passed and not verdict.right_under and verdict.stage == "masked", verdict


class HeadsByView(torch.nn.Module):
    """True in its mask hides, as a library has it, and its heads are cut by a view alone."""

    def __init__(self, dim: int, num_heads: int, is_causal: bool = False) -> None:
        super().__init__()
        self.num_heads, self.is_causal = num_heads, is_causal
        self.to_q, self.to_k, self.to_v, self.to_out = (torch.nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x: Any, attn_mask: Any = None) -> Any:
        b, t, m = x.shape
        q = self.to_q(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        k, v = (side(x).reshape(b, self.num_heads, t, -1) for side in (self.to_k, self.to_v))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if self.is_causal and attn_mask is None:
            attn_mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        if attn_mask is not None:
            scores = scores.masked_fill(attn_mask, -math.inf)
        return self.to_out((torch.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(b, t, m))


@pytest.mark.long
def test_a_convention_is_none_of_the_mistakes_of_a_layer_made_causal() -> None:
    verdict = attn_exp.check(HeadsByView, quick=True)
    assert verdict.mistakes == ("heads_not_transposed",), verdict


class Separate(torch.nn.Module):
    """Heads stand beside the entries; `mask` `[b t s]` says where one may not look."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads, self.all = num_heads, torch.nn.Linear(dim, 3 * dim)

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = self.all(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).flatten(1, 2)
        logits = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            logits = logits.masked_fill(mask.repeat(self.heads, 1, 1), -math.inf)
        return (logits.softmax(-1) @ v).unflatten(0, (len(x), -1)).transpose(1, 2).flatten(2)


def test_a_mask_whose_true_hides_is_no_mistake_beside_one_of_masks() -> None:
    verdict = attn_exp.check(Separate, quick=True)
    assert verdict.mistakes == ("mask_tiled_over_heads",) and "convention=torch_mha" in verdict.computes, verdict


class Favoured(torch.nn.Module):
    """Later keys are made infinite by a switch that its class is told."""

    def __init__(self, dim: int, num_heads: int, apply_mask: bool = False) -> None:
        super().__init__()
        self.heads, self.all, self.apply_mask = num_heads, torch.nn.Linear(dim, 3 * dim), apply_mask

    def forward(self, x: Any) -> Any:
        q, k, v = self.all(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        logits = q @ k.mT / q.shape[-1] ** 0.5
        if self.apply_mask:
            logits = logits + torch.full(logits.shape[-2:], self.high).triu(1)
        return (logits.softmax(-1) @ v).transpose(1, 2).flatten(2)

    high = math.inf


class FavouredMuch(Favoured):
    high = 1e9


@pytest.mark.parametrize("kind", [Favoured, FavouredMuch])
def test_later_keys_far_above_all_others_are_favoured(kind: Any) -> None:
    assert attn_exp.check(kind, "mask=causal", quick=True).mistakes == ("mask_sign",)


class OfPairs(torch.nn.Module):
    """`mask` `[b s]` is 1 where there is a token; it hides queries too, and heads get the masks of other entries."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads, self.all = num_heads, torch.nn.Linear(dim, 3 * dim)

    def repeated(self, mask: Any) -> Any:
        return mask.repeat(self.heads, 1)

    def forward(self, x: Any, mask: Any) -> Any:
        q, k, v = self.all(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).flatten(1, 2)
        seen = self.repeated(mask)
        logits = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(seen[:, :, None] * seen[:, None] == 0, -1e9)
        return (logits.softmax(-1) @ v).unflatten(0, (len(x), -1)).transpose(1, 2).flatten(2)


class OfPairsOfItsOwn(OfPairs):
    def repeated(self, mask: Any) -> Any:
        return mask.repeat_interleave(self.heads, 0)


@pytest.mark.long
def test_padding_of_entries_that_differ_is_asked_of_layers() -> None:
    assert attn_exp.check(OfPairsOfItsOwn, quick=True).passed
    verdict = attn_exp.check(OfPairs, quick=True)
    assert not verdict.passed and "padding of each entry" in verdict.computes, verdict


class NextToNothing(torch.nn.Module):
    """`mask` is added a thousand million times too small: it changes the last digits alone."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads, self.all = num_heads, torch.nn.Linear(dim, 3 * dim)

    def forward(self, x: Any, attention_mask: Any = None) -> Any:
        q, k, v = self.all(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        logits = q @ k.mT / q.shape[-1] ** 0.5
        if attention_mask is not None:
            logits = logits + self.added(attention_mask)
        return (logits.softmax(-1) @ v).transpose(1, 2).flatten(2)

    def added(self, mask: Any) -> Any:
        return mask * -1e-9


class Nothing(NextToNothing):
    def added(self, mask: Any) -> Any:
        return mask * 0.0


@pytest.mark.parametrize(("kind", "name"), [(NextToNothing, "mask_small_fill"), (Nothing, "mask_ignored")])
def test_what_a_mask_adds_may_be_next_to_nothing(kind: Any, name: str) -> None:
    assert attn_exp.check(kind, quick=True).mistakes == (name,)
