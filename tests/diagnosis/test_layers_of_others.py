"""Layers as people write them: filler, masks that mean causal, weights scaled late; and what was not asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch


class Layer(torch.nn.Module):
    """Attention whose q, k and v lie innermost in one matrix; `weigh` says how scores become weights."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.dim = heads, dim
        self.packed, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)

    def weigh(self, scores: Any, mask: Any) -> Any:
        return (scores / (self.dim // self.heads) ** 0.5).softmax(-1)

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = (part.transpose(1, 2) for part in self.packed(x).unflatten(-1, (self.heads, -1, 3)).unbind(-1))
        return self.out((self.weigh(q @ k.mT, mask) @ v).transpose(1, 2).flatten(2))


class OfFiller(Layer):
    """Its mask `[b s]` hides all from queries of filler too."""

    def weigh(self, scores: Any, mask: Any) -> Any:
        scores = scores / (self.dim // self.heads) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~(mask[:, None, None, :] & mask[:, None, :, None]), -1e30)
        return scores.softmax(-1)


class OfQueries(OfFiller):
    """Its mask hides queries instead of keys."""

    def weigh(self, scores: Any, mask: Any) -> Any:
        seen = scores / (self.dim // self.heads) ** 0.5
        if mask is not None:
            seen = seen.masked_fill(~mask.expand(len(scores), scores.shape[-1])[:, None, :, None], -1e30)
        return seen.softmax(-1)


class AnyIsCausal(Layer):
    """Any mask means a causal one."""

    def weigh(self, scores: Any, mask: Any) -> Any:
        seen = scores / (self.dim // self.heads) ** 0.5
        if mask is not None:
            seen = seen.masked_fill(torch.ones_like(scores).triu(1).bool(), -np.inf)
        return seen.softmax(-1)


class ScaledLate(Layer):
    """The root of the whole width divides the weights."""

    def weigh(self, scores: Any, mask: Any) -> Any:
        return scores.softmax(-1) / self.dim**0.5


class SeesLater(Layer):
    """Each token sees itself and those behind it, so that the last one sees itself alone."""

    def weigh(self, scores: Any, mask: Any) -> Any:
        return super().weigh(scores.masked_fill(torch.ones_like(scores).tril(-1).bool(), -1e30), None)


class OfTwoMasks(Layer):
    """It wants two masks, of which each hides all where it is True: keys, and answers."""

    def forward(self, x: Any, pre_mask: Any = None, post_mask: Any = None) -> Any:
        said = super().forward(x, pre_mask[:, None])
        return said.masked_fill(post_mask[..., None], 0.0)

    def weigh(self, scores: Any, mask: Any) -> Any:
        return super().weigh(scores.masked_fill(mask, -np.inf), None).nan_to_num(0.0)


def test_a_layer_whose_last_token_sees_itself_alone_is_asked_by_its_first() -> None:
    assert attn_exp.check(SeesLater, quick=True).mistakes == ("causal_flipped", "mask_ignored")


def test_two_masks_that_hide_all_are_turned_both() -> None:
    verdict = attn_exp.check(OfTwoMasks, quick=True)
    assert verdict.passed, verdict


def test_what_queries_of_filler_give_is_nobodys_affair() -> None:
    verdict = attn_exp.check(OfFiller, quick=True)
    assert verdict.passed, verdict
    assert not attn_exp.check(OfQueries, quick=True).passed


def test_a_mask_that_means_causal_is_said() -> None:
    verdict = attn_exp.check(AnyIsCausal, quick=True)
    assert verdict.passed, verdict
    assert "other masks (any mask that is given means a causal one)" in verdict.not_asked


@pytest.mark.long
def test_weights_that_are_scaled_late_are_named_whatever_the_order_of_the_matrix() -> None:
    found = attn_exp.check(ScaledLate, quick=True).mistakes
    assert set(found) == {"mask_ignored", "scale_after_softmax", "scale_by_sqrt_d_model"}


def test_what_was_not_asked_is_said_with_its_reason() -> None:
    def plain(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True) @ v

    verdict = attn_exp.check(plain, quick=True)
    assert verdict.not_asked[0] == "masks (it has no word for one)"
    assert verdict.not_asked[1].startswith("fewer key/value heads (ValueError: ")
    assert "cross attention (it takes one input)" in attn_exp.check(Layer, quick=True).not_asked
    assert "not asked: masks (it has no word for one)" in str(verdict)


class WithMaskedQueries(Layer):
    """Its mask `[b s]` hides keys, and what queries of filler give is zeros; `key_mask` fails without it."""

    def forward(self, x: Any, mask: Any = None, key_mask: Any = None) -> Any:
        q, k, v = (part.transpose(1, 2) for part in self.packed(x).unflatten(-1, (self.heads, -1, 3)).unbind(-1))
        scores = q @ k.mT / (self.dim // self.heads) ** 0.5
        hidden = mask if key_mask is None else key_mask * mask
        if hidden is not None:
            scores = scores + ((1 - hidden) * -1e32)[:, None, None, :]
        answer = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return answer if mask is None else answer * mask[..., None]


def test_a_mask_of_keys_that_makes_zeros_of_queries_is_right_whatever_stands_beside_it() -> None:
    verdict = attn_exp.check(WithMaskedQueries, quick=True)
    assert verdict.passed, verdict
    assert {finding.rung: finding.state for finding in verdict.findings}["padding"] == "held"


class Viewed(Layer):
    """Heads by a view alone; True hides in its mask of keys."""

    def forward(self, x: Any, padding_mask: Any = None) -> Any:
        q, k, v = (part.reshape(len(x), self.heads, x.shape[1], -1) for part in self.packed(x).chunk(3, -1))
        scores = q @ k.mT / (self.dim // self.heads) ** 0.5
        if padding_mask is not None:
            scores = scores.masked_fill(padding_mask == 1, -1e9)
        return self.out((scores.softmax(-1) @ v).reshape(x.shape))


def test_how_a_layer_wants_its_mask_is_found_beside_a_mistake() -> None:
    verdict = attn_exp.check(Viewed, quick=True)
    assert verdict.mistakes == ("heads_not_transposed",), verdict
    assert "convention=torch_mha" in verdict.computes, verdict


class TakesAwayNearlyNothing(Layer):
    """A hidden key loses 1e-12; -inf in its mask would hide it all the same."""

    def weigh(self, scores: Any, mask: Any) -> Any:
        scores = scores / (self.dim // self.heads) ** 0.5
        return (scores if mask is None else scores - 1e-12 * (1.0 - mask[:, None, None].double())).softmax(-1)


def test_what_infinity_alone_hides_is_no_mask_that_is_added() -> None:
    verdict = attn_exp.check(TakesAwayNearlyNothing, quick=True)
    assert not verdict.passed and verdict.mistakes[0] in ("mask_ignored", "mask_small_fill"), verdict


class OneMaskForAll(Layer):
    """Its mask is `[t s]`; of one with more axes it makes something else, and says nothing."""

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = (part.transpose(1, 2) for part in self.packed(x).unflatten(-1, (self.heads, -1, 3)).unbind(-1))
        scores = q @ k.mT / (self.dim // self.heads) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[None, None].bool(), -1e9)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(*x.shape[:2], -1))


def test_what_a_layer_makes_of_masks_that_it_never_promised_is_no_mistake() -> None:
    verdict = attn_exp.check(OneMaskForAll, quick=True)
    assert verdict.passed, verdict
    assert any("something else of such a mask" in said for said in verdict.not_asked), verdict.not_asked


class Turning(Layer):
    """Rotary positions of a base of its own, on some numbers of a head, behind a causal mask."""

    base, size, beside = 500.0, 4, False

    def turned(self, heads: Any) -> Any:
        part, rest = heads[..., : self.size], heads[..., self.size :]
        angles = torch.arange(heads.shape[-2])[:, None] / self.base ** (torch.arange(0, self.size, 2) / self.size)
        first, second = (part[..., 0::2], part[..., 1::2]) if self.beside else part.chunk(2, -1)
        both = first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos()
        return torch.cat([torch.stack(both, -1).flatten(-2) if self.beside else torch.cat(both, -1), rest], -1)

    def forward(self, x: Any) -> Any:  # type: ignore[override]  # it takes no mask
        q, k, v = (part.transpose(1, 2) for part in self.packed(x).unflatten(-1, (self.heads, -1, 3)).unbind(-1))
        scores = self.turned(q) @ self.turned(k).mT / (self.dim // self.heads) ** 0.5
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -np.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class OfUnitLength(Layer):
    """Queries and keys are normed in a line of code, and nothing else is scaled."""

    def normed(self, heads: Any) -> Any:
        return torch.nn.functional.normalize(heads, dim=-1)

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = (part.transpose(1, 2) for part in self.packed(x).unflatten(-1, (self.heads, -1, 3)).unbind(-1))
        scores = self.normed(q) @ self.normed(k).mT
        scores = scores if mask is None else scores.masked_fill(mask == 0, -np.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class OfUnitSquares(OfUnitLength):
    def normed(self, heads: Any) -> Any:
        return heads * torch.rsqrt(heads.pow(2).mean(-1, keepdim=True) + 1e-6) / heads.shape[-1] ** 0.25


@pytest.mark.parametrize(("kind", "said"), [(OfUnitLength, "with L2 of k and q"), (OfUnitSquares, "with RMSNorm of")])
def test_norms_of_queries_and_keys_that_no_module_makes_are_said_and_no_mistake(kind: Any, said: str) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.passed and said in str(verdict), verdict


class OneQuery(torch.nn.Module):
    """One query `[b m]` for each entry asks a history `[b s m]`."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v, self.out = (torch.nn.Linear(dim, dim, bias=False) for _ in range(4))

    def forward(self, target: Any, history_sequence: Any) -> Any:
        cut = (len(target), -1, self.heads, target.shape[-1] // self.heads)
        parts = self.to_q(target), self.to_k(history_sequence), self.to_v(history_sequence)
        q, k, v = (part.view(cut).transpose(1, 2) for part in parts)
        return self.out(((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).reshape(len(target), -1))


def test_entries_of_a_batch_are_not_taken_for_tokens() -> None:
    verdict = attn_exp.check(OneQuery, quick=True)
    assert verdict.passed and "each token as the one query of a call" in str(verdict), verdict


class OfLengths(torch.nn.Module):
    """Lengths say how many keys `[b s d]` of an entry are seen; without, it takes any number of axes."""

    def forward(self, queries: Any, keys: Any, values: Any, valid_lens: Any = None) -> Any:
        scores = queries @ keys.mT / queries.shape[-1] ** 0.5
        if valid_lens is not None:
            seen = torch.arange(keys.shape[1]) < valid_lens.repeat_interleave(scores.shape[1])[:, None]
            flat = scores.flatten(0, 1)
            flat[~seen] = -1e6
            scores = flat.unflatten(0, scores.shape[:2])
        return scores.softmax(-1) @ values


class OfLongerLengths(OfLengths):
    """It shows a key more than its lengths say."""

    def forward(self, queries: Any, keys: Any, values: Any, valid_lens: Any = None) -> Any:
        return super().forward(queries, keys, values, None if valid_lens is None else valid_lens + 1)


def test_masks_that_fail_with_heads_are_asked_without() -> None:
    verdict = attn_exp.check(OfLengths, quick=True)
    assert verdict.passed, verdict
    assert "[b t d]" in str(verdict)
    assert not attn_exp.check(OfLongerLengths, quick=True).passed


class OfFourAxes(OfLengths):
    """Its lengths fail, and it takes arrays with heads alone."""

    def forward(self, queries: Any, keys: Any, values: Any, valid_lens: Any = None) -> Any:
        _, _, _, size = queries.shape
        scores = queries @ keys.mT / size**0.5
        return (scores if valid_lens is None else scores[valid_lens]).softmax(-1) @ values


def test_masks_that_fail_where_arrays_must_have_heads_stay_broken() -> None:
    verdict = attn_exp.check(OfFourAxes, quick=True)
    assert not verdict.passed and not verdict.uncalled, verdict
