"""Masks of layers whose matrices nobody finds: what they hide is seen in the operations of a call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.arrays import Array
from attn_exp.diagnosis.inside.cores import Core
from attn_exp.diagnosis.inside.masks_inside import of_core

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import nn

from tests.diagnosis.test_inner import Bent


class Own(Bent):
    """A mask of its own, for later keys."""

    shift, number = 1, -torch.inf

    def beside(self, scores: Any, q: Any) -> Any:
        return scores.masked_fill(self.later(scores).bool(), self.number)

    def later(self, scores: Any) -> Any:
        return torch.ones_like(scores).triu(self.shift)


class Strict(Own):
    shift, number = 0, -1e9


class Next(Own):
    shift = 2


class Flipped(Own):
    def later(self, scores: Any) -> Any:
        return torch.ones_like(scores).tril(-1)


class OthersHidden(Own):
    number = -1e9

    def later(self, scores: Any) -> Any:
        return torch.ones_like(scores).tril()


class Small(Own):
    number = 1e-9


class SmallAndFlipped(Flipped):
    number = 0.0


class ScaledAfter(Bent):
    def beside(self, scores: Any, q: Any) -> Any:
        return scores * self.root

    def shares(self, scores: Any) -> Any:
        return scores.softmax(-1) / self.root


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        (Strict, {"causal_strict"}), (Next, {"causal_next"}), (Flipped, {"causal_flipped"}),
        (OthersHidden, {"mask_inverted"}), (Small, {"mask_small_fill"}), (ScaledAfter, {"scale_after_softmax"}),
        (SmallAndFlipped, {"causal_flipped", "mask_small_fill"}),
    ],
)  # fmt: skip
def test_what_a_mask_of_its_own_hides_is_named(layer: type[nn.Module], names: set[str]) -> None:
    verdict = attn_exp.check(layer(24, 3), quick=True)
    assert set(verdict.mistakes) == names and not verdict.passed, verdict


class Asked(Bent):
    """It takes a mask: zero hides."""

    def forward(self, x: Any, mask: Any = None) -> Any:
        self.mask = mask
        return super().forward(x)

    def beside(self, scores: Any, q: Any) -> Any:
        return scores if self.mask is None else self.masked(scores)

    def masked(self, scores: Any) -> Any:
        return scores.masked_fill(self.mask == 0, -torch.inf)


class OfEntries(Asked):
    def masked(self, scores: Any) -> Any:
        return scores.masked_fill(self.mask[:, None] == 0, -1e9)


class Added(Asked):
    def masked(self, scores: Any) -> Any:
        return scores + self.mask


class OfKeys(Asked):
    def masked(self, scores: Any) -> Any:
        return scores.masked_fill(self.mask[:, None, None] == 0, -torch.inf)


class Inverted(Asked):
    def masked(self, scores: Any) -> Any:
        return scores.masked_fill(self.mask.bool(), -torch.inf)


class Ignored(Asked):
    def masked(self, scores: Any) -> Any:
        scores.masked_fill(self.mask == 0, -torch.inf)
        return scores


class WaitsForASwitch(Bent):
    """Its mask is for another way of calling."""

    def forward(self, x: Any, use_fast: bool = False, fast_mask: Any = None) -> Any:
        if use_fast:
            raise NotImplementedError
        return super().forward(x)


def test_a_mask_that_is_called_after_a_switch_waits_for_it() -> None:
    assert attn_exp.check(WaitsForASwitch(24, 3), quick=True).passed
    assert attn_exp.check(Ignored(24, 3), quick=True).mistakes == ("mask_ignored",)


class SmallFill(Asked):
    def masked(self, scores: Any) -> Any:
        return scores.masked_fill(self.mask == 0, -1e-9)


class NextToNothing(Asked):
    """What it adds where the mask hides changes the tenth digit of the weights."""

    def masked(self, scores: Any) -> Any:
        return scores - 1e-9 * (self.mask == 0)


class Exchanged(Asked):
    def masked(self, scores: Any) -> Any:
        return scores.masked_fill(self.mask.mT == 0, -torch.inf)


class OnWeights(Asked):
    def beside(self, scores: Any, q: Any) -> Any:
        return scores

    def shares(self, scores: Any) -> Any:
        weights = scores.softmax(-1)
        return weights if self.mask is None else weights.masked_fill(self.mask == 0, 0.0)


class FirstAlone(OfEntries):
    """What the first entry hides is hidden in all of them."""

    def masked(self, scores: Any) -> Any:
        return scores.masked_fill(self.mask[:1, None] == 0, -1e9)


class FirstKeysAlone(OfKeys):
    def masked(self, scores: Any) -> Any:
        return scores.masked_fill(self.mask[:1, None, None] == 0, -1e9)


class OfPairs(Asked):
    """A mask of tokens that are no filler, which hides the rows of filler too."""

    def masked(self, scores: Any) -> Any:
        real = self.mask.bool()
        return scores.masked_fill(~(real[:, None] & real[:, :, None])[:, None], -1e9)


@pytest.mark.parametrize("layer", [Asked, OfEntries, Added, OfKeys, OfPairs])
def test_a_mask_that_hides_what_it_says_is_asked_inside(layer: type[nn.Module]) -> None:
    verdict = attn_exp.check(layer(24, 3), quick=True)
    assert verdict.passed and "hides what it says" in str(verdict), verdict
    assert not any("masks" in one for one in verdict.not_asked)


def test_a_mask_that_hides_where_it_is_true_is_told_as_a_convention() -> None:
    verdict = attn_exp.check(Inverted(24, 3), quick=True)
    assert verdict.right_under == "convention=torch_mha" and not verdict.mistakes and not verdict.passed, verdict


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (Ignored, "mask_ignored"), (SmallFill, "mask_small_fill"), (NextToNothing, "mask_small_fill"),
        (Exchanged, "mask_transposed"), (OnWeights, "mask_after_softmax"),
        (FirstAlone, "mask_of_first_entry"), (FirstKeysAlone, "mask_of_first_entry"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_mask_inside_is_named(layer: type[nn.Module], name: str) -> None:
    verdict = attn_exp.check(layer(24, 3), quick=True)
    assert verdict.mistakes == (name,) and not verdict.passed, verdict


class KeysPadded(Asked):
    """Its word is the library's: there True hides."""

    def forward(self, x: Any, key_padding_mask: Any = None) -> Any:
        return super().forward(x, key_padding_mask)

    def masked(self, scores: Any) -> Any:
        return scores.masked_fill(self.mask[:, None, None], -torch.inf)


class OtherScores(Asked):
    """With a mask its scores are scaled once more."""

    def masked(self, scores: Any) -> Any:
        return (scores / self.root).masked_fill(self.mask == 0, -torch.inf)


def test_a_mask_with_which_scores_are_others_is_no_right_one() -> None:
    verdict = attn_exp.check(OtherScores(24, 3), quick=True)
    assert not verdict.passed and "the keys that it does not hide are others" in str(verdict), verdict


def test_true_hides_under_the_word_for_padding_of_the_library() -> None:
    verdict = attn_exp.check(KeysPadded(24, 3), quick=True)
    assert verdict.passed, verdict


class LowWeights(nn.Module):
    """Projections that anybody finds, and -inf where a mask hides, put on the weights."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.net = heads, nn.Linear(dim, 3 * dim)
        self.out: nn.Module = nn.Linear(dim, dim)

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.net(x).chunk(3, -1))
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.out((self.hidden(weights, mask) @ v).transpose(1, 2).flatten(2))

    def hidden(self, weights: Any, mask: Any) -> Any:
        return weights if mask is None else weights.masked_fill(mask == 0, -torch.inf)


class PairsAfter(LowWeights):
    def hidden(self, weights: Any, mask: Any) -> Any:
        return weights if mask is None else weights * (mask[:, None] & mask[:, :, None])[:, None]


class PairsAfterUnused(PairsAfter):
    """Its last matrix is made and never used."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.out_w, self.out = nn.Parameter(torch.randn(dim, dim)), nn.Identity()


def test_a_mask_beside_a_matrix_that_is_never_used_is_looked_at_inside() -> None:
    assert set(attn_exp.check(PairsAfterUnused).mistakes) == {"mask_after_softmax", "no_output_projection"}


@pytest.mark.parametrize("layer", [LowWeights, PairsAfter])
def test_a_mask_that_answers_do_not_explain_is_looked_at_inside(layer: type[nn.Module]) -> None:
    verdict = attn_exp.check(layer)
    assert verdict.mistakes == ("mask_after_softmax",), verdict


def test_a_mask_of_fewer_queries_than_keys_is_read_as_any_other() -> None:
    """Rows of filler are left out where a layer hides them too: what is left has fewer queries than keys."""
    draw = np.random.default_rng(7)
    logits = draw.standard_normal((1, 5, 7))
    allowed = np.broadcast_to(np.arange(7) < 5, (5, 7))
    q, k, v = draw.standard_normal((1, 5, 4)), *draw.standard_normal((2, 1, 7, 4))
    plain = Core(q, k, v, logits, logits, shares(logits), shares(logits), 1.0, 1.0, False, (0, 1, 2), False)
    turned = np.where(allowed, -np.inf, logits)
    masked = replace(plain, logits=turned, weights=shares(turned))
    assert of_core(masked, plain, allowed) == "mask_inverted"
    assert of_core(plain, plain, allowed) is None
    assert of_core(replace(plain, logits=np.where(allowed, logits, -np.inf)), plain, allowed) == ""


def shares(logits: Array) -> Array:
    powers: Array = np.exp(logits - logits.max(-1, keepdims=True))
    whole: Array = powers.sum(-1, keepdims=True)
    return np.divide(powers, whole)


class Unweighed(Bent):
    """No softmax makes its weights, and a number is filled in where its mask hides."""

    number = 0.0

    def side(self, matrix: Any, x: Any) -> Any:
        return self.cut(matrix(x).tanh())

    def shares(self, scores: Any) -> Any:
        return scores if self.mask is None else scores.masked_fill(~self.mask, self.number)

    def forward(self, x: Any, mask: Any = None) -> Any:
        self.mask = mask
        return super().forward(x)


class UnweighedAndFar(Unweighed):
    number = 1e9


def test_a_large_number_in_the_place_of_a_weight_favours_what_it_should_hide() -> None:
    assert set(attn_exp.check(UnweighedAndFar(24, 3), quick=True).mistakes) == {"no_softmax", "mask_sign"}
    assert attn_exp.check(Unweighed(24, 3), quick=True).mistakes == ("no_softmax",)


class BesideAContext(nn.Module):
    """The keys of a context stand before those of x, and its mask is one of all of them."""

    lowest = -torch.inf

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.q, self.kv, self.o = heads, *(nn.Linear(dim, wide * dim) for wide in (1, 2, 1))
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Any, context_states: Any, attention_mask: Any = None) -> Any:
        every = torch.cat([context_states, x], dim=1)
        q, k, v = (
            one.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for one in (self.q(torch.sin(x)), *self.kv(self.norm(every)).chunk(2, -1))
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if attention_mask is not None:
            scores = scores + torch.where(attention_mask, 0.0, self.lowest)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class BesideAContextHidesLittle(BesideAContext):
    lowest = -3.0


def test_a_mask_of_all_keys_is_found_where_others_stand_beside_those_of_x() -> None:
    verdict = attn_exp.check(BesideAContext, quick=True)
    assert verdict.passed, verdict
    assert "the mask attention_mask" in {one.rung for one in verdict.findings if one.state == "held"}, verdict
    assert attn_exp.check(BesideAContextHidesLittle, quick=True).mistakes == ("mask_small_fill",)


class Switched(Bent):
    """Its `mask` is a switch, whose triangle has another name than is read: it can be made no use of."""

    def forward(self, x: Any, mask: bool) -> Any:  # type: ignore[override] # nothing stands for it
        if mask is True:
            raise AttributeError("no attribute 'tril'")
        return super().forward(x)


def test_a_mask_that_is_noted_as_true_or_false_is_no_array_that_is_ignored() -> None:
    verdict = attn_exp.check(Switched, quick=True)
    assert (verdict.passed, verdict.mistakes) == (True, ()), verdict
