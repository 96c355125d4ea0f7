"""Layers in which more is going on than attention: another type of numbers, gates, tables of places, layers beside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch


class Plain(torch.nn.Module):
    """A layer that takes x alone."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.dim = heads, dim
        self.packed, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)

    def weigh(self, scores: Any) -> Any:
        return (scores / (self.dim // self.heads) ** 0.5).softmax(-1)

    def heads_of(self, x: Any) -> Any:
        q, k, v = (part.transpose(1, 2) for part in self.packed(x).unflatten(-1, (self.heads, -1, 3)).unbind(-1))
        return (self.weigh(q @ k.mT) @ v).transpose(1, 2).flatten(2)

    def forward(self, x: Any) -> Any:
        return self.out(self.heads_of(x))


class WithStore(Plain):
    """It keeps x in a store that is float32, also in a module that was made float64."""

    def forward(self, x: Any) -> Any:
        store = torch.zeros(x.shape)
        store[:] = x
        return super().forward(store)


class UnscaledStore(WithStore):
    """The same without a scale."""

    def weigh(self, scores: Any) -> Any:
        return scores.softmax(-1)


class NormedInSingle(Plain):
    """Its norm before is one of float32, whatever it is given."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.norm = SingleNorm(dim)

    def forward(self, x: Any) -> Any:
        return super().forward(self.norm(x))


class SingleNorm(torch.nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(dim))

    def forward(self, x: Any) -> Any:
        one = x.float()
        return self.weight * (one * (one.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).type_as(x)


class Gated(Plain):
    """What heads say is multiplied by the sigmoid of a layer of x."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.gate = torch.nn.Linear(dim, dim)

    def forward(self, x: Any) -> Any:
        return self.out(self.heads_of(x) * self.gate(x).sigmoid())


class Parallel(torch.nn.Module):
    """One matrix makes q, one k, one v, and what a feed-forward layer beside attention is given."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.fused = torch.nn.Linear(dim, dim + 2 * self.size + 4 * dim, bias=False)
        self.last, self.beside = torch.nn.Linear(dim, dim, bias=False), torch.nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x: Any) -> Any:
        dim = x.shape[-1]
        q, k, v, more = self.fused(x).split([dim, self.size, self.size, 4 * dim], -1)
        q = q.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        weights = (q @ k.mT[:, None] / self.size**0.5).softmax(-1)
        one, other = more.chunk(2, -1)
        return self.last((weights @ v[:, None]).transpose(1, 2).flatten(2)) + self.beside(one.sigmoid() * other)


class OfWindow(Plain):
    """A learned number is added to each logit of a window, so that it takes as many tokens as that has."""

    def __init__(self, dim: int, window_size: tuple[int, int], heads: int) -> None:
        super().__init__(dim, heads)
        tokens = window_size[0] * window_size[1]
        self.table = torch.nn.Parameter(torch.randn(heads, tokens, tokens))

    def weigh(self, scores: Any) -> Any:
        return super().weigh(scores + self.table)


class WindowUnscaled(OfWindow):
    """The same without a scale."""

    def weigh(self, scores: Any) -> Any:
        return (scores + self.table).softmax(-1)


class Shared(torch.nn.Module):
    """Each head applies the same three matrices to its slice of x."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.dim, size = heads, dim, dim // heads
        self.one, self.two = torch.nn.Linear(size, size, bias=False), torch.nn.Linear(size, size)
        self.three, self.last = torch.nn.Linear(size, size, bias=False), torch.nn.Linear(dim, dim)

    def divisor(self) -> float:
        return float(self.dim // self.heads)

    def forward(self, x: Any) -> Any:
        slices = x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        weights = (self.one(slices) @ self.two(slices).mT / self.divisor() ** 0.5).softmax(-1)
        return self.last((weights @ self.three(slices)).transpose(1, 2).flatten(2))


class Narrow(torch.nn.Module):
    """Each head applies matrices of its own to its slice of x, and a residual goes beside."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        size = dim // heads
        self.a, self.b, self.c = (
            torch.nn.ModuleList(torch.nn.Linear(size, size) for _ in range(heads)) for _ in range(3)
        )

    def forward(self, x: Any) -> Any:
        parts = zip(self.a, self.b, self.c, x.chunk(len(self.a), -1), strict=True)
        return x + torch.cat([((a(y) @ b(y).mT) / y.shape[-1] ** 0.5).softmax(-1) @ c(y) for a, b, c, y in parts], -1)


class SharedByWidth(Shared):
    """The same, with the root of the whole width."""

    def divisor(self) -> float:
        return float(self.dim)


class Block(Plain):
    """A norm before, a residual after, and then a feed-forward layer with a norm and a residual of its own."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.first, self.second = torch.nn.LayerNorm(dim), torch.nn.LayerNorm(dim)
        self.more = torch.nn.Sequential(torch.nn.Linear(dim, 4 * dim), torch.nn.GELU(), torch.nn.Linear(4 * dim, dim))

    def forward(self, x: Any) -> Any:
        x = x + super().forward(self.first(x))
        return x + self.more(self.second(x))


class NormsAfter(Block):
    """The same with norms after."""

    def forward(self, x: Any) -> Any:
        x = self.first(x + Plain.forward(self, x))
        return self.second(x + self.more(x))


class UnscaledBlock(Block):
    """A block without a scale."""

    def weigh(self, scores: Any) -> Any:
        return scores.softmax(-1)


class OfFirst(Plain):
    """It answers for its first token alone."""

    def forward(self, x: Any) -> Any:
        return super().forward(x)[:, :1]


class OfLast(Plain):
    """It answers for its last token alone."""

    def forward(self, x: Any) -> Any:
        return super().forward(x)[:, -1:]


class OfKind(Plain):
    """It wants one of two words."""

    def __init__(self, dim: int, heads: int, kind: str) -> None:
        super().__init__(dim, heads)
        if kind == "whole":
            self.divisor = dim**0.5
        elif kind == "head":
            self.divisor = (dim // heads) ** 0.5
        else:
            raise ValueError(f"unknown: {kind}")

    def weigh(self, scores: Any) -> Any:
        return (scores / self.divisor).softmax(-1)


class IntoStore(Plain):
    """It writes keys and values into a store that it is given, at the places that it is told."""

    def forward(self, x: Any, write_indices: Any, kv_cache: Any) -> Any:  # type: ignore[override] # it needs them
        parts = self.packed(x).unflatten(-1, (self.heads, -1, 3)).unbind(-1)
        k, v = (room.index_copy(1, write_indices, part) for room, part in zip(kv_cache, parts[1:], strict=True))
        q, k, v = (part.transpose(1, 2) for part in (parts[0], k, v))
        return self.out((self.weigh(q @ k.mT) @ v).transpose(1, 2).flatten(2))


class Blocks:
    """A mask that is no array."""


class MaskOfBlocks(Plain):
    """Its mask is an object of a class of its own, or nothing."""

    def forward(self, x: Any, mask: Blocks | None) -> Any:  # type: ignore[override] # it needs one
        assert mask is None or isinstance(mask, Blocks)
        return super().forward(x)


class NeedsHiding(Plain):
    """It cannot do without a mask, and True hides in it."""

    def forward(self, x: Any, mask: Any) -> Any:  # type: ignore[override] # that is what it is about
        self.mask = mask[:, None]
        return super().forward(x)

    def weigh(self, scores: Any) -> Any:
        return super().weigh(scores.masked_fill(self.mask, -1e9))


class CausalWithoutMask(NeedsHiding):
    """Without a mask it is causal; with one, True hides, and nothing else does."""

    def forward(self, x: Any, mask: Any = None) -> Any:
        causal = torch.ones(1, x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return super().forward(x, causal if mask is None else mask)


@pytest.mark.parametrize(
    "layer",
    [WithStore, NormedInSingle, Gated, OfWindow, Shared, Narrow, Block, NormsAfter, OfFirst, IntoStore, MaskOfBlocks],
)
def test_a_layer_is_right_whatever_stands_beside_its_attention(layer: Any) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.passed, verdict


def test_a_layer_that_answers_for_another_token_is_asked_with_each_token_there() -> None:
    verdict = attn_exp.check(OfLast, quick=True)
    assert verdict.passed and "with each token put last in turn" in str(verdict)


def test_what_a_class_compares_a_text_with_is_what_it_may_be() -> None:
    assert attn_exp.check(OfKind, quick=True).mistakes == ("scale_by_sqrt_d_model",)


def test_what_was_set_aside_is_said() -> None:
    assert "8 tokens, the only number that it takes" in str(attn_exp.check(OfWindow, quick=True))
    assert "its gate open by gate.bias" in str(attn_exp.check(Gated, quick=True))
    assert attn_exp.check(Parallel, quick=True).passed


@pytest.mark.parametrize("layer", [UnscaledStore, WindowUnscaled, UnscaledBlock])
def test_a_mistake_is_named_whatever_stands_beside_it(layer: Any) -> None:
    assert attn_exp.check(layer, quick=True).mistakes == ("no_scale",)
    assert attn_exp.check(SharedByWidth, quick=True).mistakes == ("scale_by_sqrt_d_model",)


def test_a_mask_that_hides_all_is_no_mask_for_all_to_be_seen() -> None:
    verdict = attn_exp.check(NeedsHiding, quick=True)
    assert verdict.right_under == "convention=torch_mha", verdict


def test_a_layer_that_is_causal_without_a_mask_is_given_one() -> None:
    assert attn_exp.check(CausalWithoutMask, quick=True).right_under == "convention=torch_mha"
    verdict = attn_exp.check(CausalWithoutMask, "convention=torch_mha", quick=True)
    assert verdict.passed, verdict
    assert "a mask in each call, as it is causal without one" in str(verdict)


def test_a_mask_of_dropout_hides_no_keys() -> None:
    def attention(q: Any, k: Any, v: Any, dropout_mask: Any = None) -> Any:
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return (weights if dropout_mask is None else weights.masked_fill(~dropout_mask, 0.0)) @ v

    verdict = attn_exp.check(attention, quick=True)
    assert verdict.passed, verdict


def test_numbers_that_are_rounded_as_they_come_in_are_no_silent_rounding() -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        said = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
        return said.to(q.dtype)

    verdict = attn_exp.check(attention, quick=True)
    assert verdict.passed, verdict
    assert "it rounds what it is given to float32" in str(verdict)


def test_a_file_whose_name_begins_with_a_digit_has_a_module_that_annotations_find(tmp_path: Path) -> None:
    path = tmp_path / "01_mine.py"
    path.write_text("""
from __future__ import annotations
import numpy as np
import sys
def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    assert attention.__module__.isidentifier() and attention.__module__ in sys.modules
    z = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    p = np.exp(z - z.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v
""")
    assert attn_exp.check(f"{path}:attention", quick=True).passed


class NormedSides(Plain):
    """Queries, keys and values are normed each, before they are cut into heads."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(dim) for _ in range(3))

    def heads_of(self, x: Any) -> Any:
        sides = (norm(part) for norm, part in zip(self.norms, self.packed(x).chunk(3, -1), strict=True))
        q, k, v = (side.unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in sides)
        return (self.weigh(q @ k.mT) @ v).transpose(1, 2).flatten(2)


def test_values_may_be_normed_as_queries_and_keys_are() -> None:
    verdict = attn_exp.check(NormedSides)
    assert verdict.passed and "LayerNorm of k and q and v" in str(verdict), str(verdict)


class WithSinks(Plain):
    """A learned logit of each head stands beside those of the keys, and no value."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.nowhere = torch.nn.Parameter(torch.randn(heads))

    def weigh(self, scores: Any) -> Any:
        beside = self.nowhere.view(-1, 1, 1).expand(*scores.shape[:-1], 1)
        whole = torch.cat([scores / self.root(), beside], -1).softmax(-1)
        return whole[..., :-1]

    def root(self) -> float:
        return float((self.dim // self.heads) ** 0.5)


class SinksUnscaled(WithSinks):
    def root(self) -> float:
        return 1.0


def test_learned_sinks_are_set_aside_and_said() -> None:
    verdict = attn_exp.check(WithSinks)
    assert verdict.passed, verdict
    assert "learned sinks" in verdict.findings[0].said
    assert attn_exp.check(SinksUnscaled, quick=True).mistakes == ("no_scale",)
