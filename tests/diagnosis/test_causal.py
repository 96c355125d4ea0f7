"""Layers that are causal by themselves, that are told to be, or that forget their causal mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import nn

from attn_exp.experiment.verdict import HELD
from tests.diagnosis.layers import Layer, Masked, Unread, changed, hide_later, logits

CAUSAL = {"weigh": lambda _, logits: hide_later(logits).softmax(-1)}
WRONG = {
    "causal_next": {"weigh": lambda _, logits: hide_later(logits, 2).softmax(-1)},
    "causal_strict": {"weigh": lambda _, logits: hide_later(logits, 0).clamp(-1e9).softmax(-1)},
    "causal_flipped": {"weigh": lambda _, logits: hide_later(logits.mT).mT.softmax(-1)},
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("name", "words"), [(name, ("mask=causal",)) for name in WRONG] + [("causal_strict", ())])
def test_a_wrong_causal_mask_is_named(name: str, words: tuple[str, ...]) -> None:
    verdict = attn_exp.check(changed(WRONG[name]), *words, quick=True)
    assert verdict.is_wrong and verdict.mistakes == (name,), verdict


@pytest.mark.long
@pytest.mark.parametrize("base", [Layer, Unread])
def test_a_layer_that_is_causal_by_itself_is_right_under_that_word(base: type[nn.Module]) -> None:
    verdict = attn_exp.check(changed(CAUSAL, base), quick=True)
    assert not verdict.is_wrong and verdict.right_under == "mask=causal", verdict
    assert attn_exp.check(base, "mask=causal", quick=True).mistakes == ("causal_ignored",)


@pytest.mark.long
@pytest.mark.parametrize("base", [Layer, Unread])
def test_a_mistake_beside_a_causal_mask_is_named_with_the_words(base: type[nn.Module]) -> None:
    by_model = {"score": lambda self, q, k: q @ k.mT / self.width**0.5}
    wrong = attn_exp.check(changed(CAUSAL | by_model, base), quick=True)
    assert wrong.mistakes == ("scale_by_sqrt_d_model",), wrong
    assert base is Unread or wrong.computes.startswith("with mask=causal, "), wrong


class Told(Layer):
    """Causal where its class is told so."""

    first = 1

    def __init__(self, d_model: int = 24, num_heads: int = 3, causal: bool = False) -> None:
        super().__init__(d_model, num_heads)
        self.causal = causal

    def weigh(self, logits: Any) -> Any:
        return super().weigh(hide_later(logits, self.first) if self.causal else logits)


class Next(Told):
    """Sees one key too many."""

    first = 2


@dataclass
class Settings:
    n_embd: int = 24
    n_head: int = 3
    causal: bool = False


class OfSettings(Told):
    """Takes its settings together, and hides nothing."""

    first = 1000

    def __init__(self, config: Settings) -> None:
        super().__init__(config.n_embd, config.n_head, config.causal)


class WithoutMatrices(nn.Module):
    """A function of q, k and v whose class has a switch for its mask."""

    first = 1

    def __init__(self, mask: bool = False) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        scores = logits(q, k)
        return (hide_later(scores, self.first) if self.mask else scores).softmax(-1) @ v


class HidesNothing(WithoutMatrices):
    first = 1000


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Told, ()), (Next, ("causal_next",)), (OfSettings, ("causal_ignored",)), (WithoutMatrices, ()),
        (HidesNothing, ("causal_ignored",)),
    ],
)  # fmt: skip
def test_a_class_that_may_be_causal_is_asked_both_ways(kind: Any, names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.mistakes == names and verdict.passed == (not names), verdict
    states = [one.state for one in verdict.findings if one.question == "made causal"]
    assert not issubclass(kind, Told) or (states == [HELD] if not names else HELD not in states)


def test_where_a_causal_mask_is_asked_for_the_class_is_told_so() -> None:
    assert attn_exp.check(Told, "mask=causal", quick=True).passed


class Refuses(Told):
    def __init__(self, d_model: int = 24, num_heads: int = 3, causal: bool = False):
        if causal:
            raise NotImplementedError("it cannot be causal")
        super().__init__(d_model, num_heads, causal)


def test_a_class_that_refuses_to_be_causal_is_not_said_to_ignore_it() -> None:
    assert attn_exp.check(Refuses, quick=True).passed


class CausalAndMasked(Masked):
    """Always causal, and keys can be hidden besides."""

    def score(self, q: Any, k: Any) -> Any:
        return hide_later(super().score(q, k))


class CausalAndKeysMasked(CausalAndMasked):
    def hide(self, logits: Any, mask: Any) -> Any:
        return logits.masked_fill(mask[:, None, None] == 0, -1e9)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (CausalAndMasked, ()), (CausalAndKeysMasked, ()),
        (changed({"hide": lambda _, logits, mask: logits}, CausalAndMasked), ("mask_ignored",)),
    ],
)  # fmt: skip
def test_a_mask_beside_a_causal_one_hides_keys_that_this_leaves(kind: Any, names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.mistakes == names and (verdict.right_under == "mask=causal") is not bool(names), verdict


class TwoMasks(Masked):
    def forward(self, x: Any, mask: Any = None, causal_mask: Any = None) -> Any:
        return super().forward(x, causal_mask if mask is None else mask)


@pytest.mark.long
def test_a_second_mask_of_a_layer_is_not_verified() -> None:
    verdict = attn_exp.check(TwoMasks, quick=True)
    assert verdict.outcome == "not verified" and "`causal_mask`" in str(verdict)


class WithHint(Masked):
    """It has the words of `torch.nn.MultiheadAttention`, where `is_causal` is a hint beside the mask."""

    def forward(self, x: Any, attn_mask: Any = None, need_weights: bool = False, is_causal: bool = False) -> Any:
        return super().forward(x, attn_mask)


class OnlyWord(Layer):
    def forward(self, x: Any, mask: Any = None) -> Any:
        return super().forward(x)


def test_a_hint_beside_a_mask_is_not_asked() -> None:
    verdict = attn_exp.check(WithHint, quick=True)
    assert verdict.passed, verdict
    assert any(said.endswith("(its code never reads it)") for said in verdict.not_asked)
    assert not any(said.startswith("masks") for said in verdict.not_asked)


def test_a_layer_that_never_reads_its_only_mask_is_wrong() -> None:
    assert attn_exp.check(OnlyWord, quick=True).mistakes == ("mask_ignored",)


class KeepsAMask(nn.Module):
    """One head with a causal mask for its longest text, as in many tutorials."""

    later: torch.Tensor

    def __init__(self, d_in: int, d_out: int, context_length: int, dropout: float) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_in, d_out) for _ in range(3))
        self.drop = nn.Dropout(dropout)
        self.register_buffer("later", torch.triu(torch.ones(context_length, context_length), 1).bool())

    def forward(self, x: Any) -> Any:
        scores = self.q(x) @ self.k(x).mT / self.q.out_features**0.5
        return self.drop(self.masked(scores).softmax(-1)) @ self.v(x)

    def masked(self, scores: Any) -> Any:
        return scores.masked_fill(self.later[: scores.shape[-1], : scores.shape[-1]], -torch.inf)


class NotAssigned(KeepsAMask):
    def masked(self, scores: Any) -> Any:
        super().masked(scores)
        return scores


class ForLater(KeepsAMask):
    trains_on_texts = False

    def masked(self, scores: Any) -> Any:
        return super().masked(scores) if self.trains_on_texts else scores


@pytest.mark.long
def test_a_causal_mask_that_is_kept_and_forgotten_is_named() -> None:
    assert attn_exp.check(KeepsAMask, quick=True).right_under == "mask=causal"
    assert attn_exp.check(NotAssigned, quick=True).mistakes == ("causal_ignored",)


def test_a_causal_mask_for_another_way_of_calling_is_no_mistake() -> None:
    verdict = attn_exp.check(ForLater, quick=True)
    assert verdict.outcome == "not verified" and not verdict.mistakes and "`later`" in str(verdict), verdict
