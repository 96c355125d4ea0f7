"""Mistakes in rotary positions, caches and windows that engineers make: no layer with one is called right."""

from __future__ import annotations

import math
from functools import partial

import pytest

import attn_exp

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from tests.diagnosis import planted_layers as layers


@pytest.mark.parametrize(
    ("kind", "words"),
    [(layers.Rotary, layers.ROPE), (layers.Cached, ()), (layers.Kept, ()), (layers.Windowed, layers.WINDOW)],
)
def test_without_a_mistake_each_layer_is_right(kind: type[layers.Base], words: tuple[str, ...]) -> None:
    verdict = attn_exp.check(kind, *words)
    assert (verdict.outcome, verdict.mistakes) == ("right", ())
    if kind in (layers.Cached, layers.Kept):
        assert "decoding with a cache" in verdict.verified


@pytest.mark.long
@pytest.mark.parametrize(("kind", "words", "fault"), layers.PLANTED)
def test_no_planted_layer_is_called_right(kind: type[layers.Base], words: tuple[str, ...], fault: str) -> None:
    assert attn_exp.check(layers.plant(kind, fault), *words).outcome != "right"


class WithBias(layers.Base):
    """A learned number for each pair of positions is added to the logits."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.table = nn.Parameter(torch.randn(num_heads, 256, 256))
        self.spare = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        rows = x.shape[1]
        weights = (q @ k.mT / math.sqrt(self.head_dim) + self.table[:, :rows, :rows]).softmax(-1)
        result: Tensor = self.out_proj((weights @ v).transpose(1, 2).reshape(x.shape))
        return result


def test_numbers_added_to_the_logits_and_unused_parameters_are_not_verified() -> None:
    verdict = attn_exp.check(WithBias)
    assert verdict.outcome == "not verified"
    assert "`logit_bias`" in str(verdict.not_verified)
    assert "`spare.weight`" in str(verdict.not_verified)


class CausalAndScaled(layers.Base):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return self.attend(q / math.sqrt(self.num_heads), k, v, layers.causal(x.shape[1], x.shape[1]))


class MaskForgotten(layers.Base):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        (q @ k.mT).masked_fill(~layers.causal(x.shape[1], x.shape[1]), -math.inf)
        return self.attend(q, k, v, torch.ones(x.shape[1], x.shape[1]).bool())


def test_a_mistake_is_named_beside_a_causal_mask_of_the_layers_own() -> None:
    verdict = attn_exp.check(CausalAndScaled, "head=4")
    assert verdict.mistakes in (("scale_other",), ("scale_fixed",), ("scale_by_sqrt_d_model",))  # 2 sqrt(6) = sqrt(24)
    assert attn_exp.check(MaskForgotten).mistakes == ("causal_ignored",)


def test_the_lines_that_show_a_wrong_layer_run_and_differ_from_the_right_numbers() -> None:
    small = attn_exp.check(CausalAndScaled, "head=4").smallest
    assert small is not None and small.mine != small.right
    space: dict[str, object] = {}
    exec(small.python.rpartition("\n")[0], space)
    layer, x = space["layer"], space["x"]
    assert isinstance(layer, nn.Module) and isinstance(x, Tensor)
    first = f"{layer(x)[0, -1, 0].item():.4f}"
    assert small.mine.startswith(f"[{first}")


def test_a_factory_says_how_a_layer_is_built_and_called() -> None:
    def make() -> tuple[object, dict[str, Tensor], dict[str, int]]:
        layer = CausalAndScaled(24, 4).double()
        return layer, {"x": torch.randn(2, 5, 24, dtype=torch.float64)}, {"heads": 4}

    def other() -> tuple[object, dict[str, Tensor]]:
        return layers.Windowed(24, 4).double(), {"x": torch.randn(2, 5, 24, dtype=torch.float64)}

    assert attn_exp.check(make).is_wrong
    assert attn_exp.check(other, *layers.WINDOW).passed


class OfTwoWidths(layers.Base):
    """Cross-attention from tokens of 24 numbers to a memory of 16; `attn_mask` is added to the logits."""

    def __init__(self, power: float = -0.5) -> None:
        super().__init__(24, 4)
        self.k_proj, self.v_proj, self.power = nn.Linear(16, 24), nn.Linear(16, 24), power

    def forward(self, x: Tensor, context: Tensor, attn_mask: Tensor | None) -> Tensor:
        q = self.q_proj(x).unflatten(-1, (4, 6)).transpose(1, 2)
        k, v = (layer(context).unflatten(-1, (4, 6)).transpose(1, 2) for layer in (self.k_proj, self.v_proj))
        logits = q @ k.mT * 6**self.power
        logits = logits if attn_mask is None else logits + attn_mask
        result: Tensor = self.out_proj((logits.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return result


@pytest.mark.parametrize("mask", [None, torch.full((5, 7), -math.inf).triu(3)])
@pytest.mark.parametrize(("power", "mistakes"), [(-0.5, ()), (0.5, ("scale_multiplied",))])
def test_a_factory_may_give_a_memory_of_another_width(
    mask: Tensor | None, power: float, mistakes: tuple[str, ...]
) -> None:
    def make() -> tuple[object, tuple[Tensor | None, ...]]:
        return OfTwoWidths(power).double(), (torch.randn(2, 5, 24).double(), torch.randn(2, 7, 16).double(), mask)

    verdict = attn_exp.check(make)
    assert verdict.mistakes == mistakes
    assert verdict.outcome == ("wrong" if mistakes else "right" if mask is not None else "not verified"), verdict


class NeighboursNotOnKeys(layers.Base):
    """RoPE turns neighbouring numbers of the queries alone."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        angles = torch.arange(x.shape[1])[:, None] * 1e4 ** (-torch.arange(0, self.head_dim, 2) / self.head_dim)
        turned = torch.view_as_complex(q.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(angles.cos() ** 0, angles)
        return self.attend(torch.view_as_real(turned).flatten(-2), k, v, layers.causal(x.shape[1], x.shape[1]))


def test_a_mistake_in_rope_is_named_whichever_numbers_make_a_pair() -> None:
    verdict = attn_exp.check(NeighboursNotOnKeys, *layers.ROPE)
    assert verdict.mistakes == ("position_missing",) and "interleaved=true" in verdict.computes, verdict


def cross_attend(tokens: Tensor, context: Tensor, Wqs: Tensor, Wks: Tensor, Wvs: Tensor, swap: bool = False) -> Tensor:
    Wqs, Wks = (Wks, Wqs) if swap else (Wqs, Wks)
    q, k, v = tokens @ Wqs, context @ Wks, context @ Wvs
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


@pytest.mark.parametrize(("swap", "outcome"), [(False, "right"), (True, "wrong")])
def test_a_factory_may_pass_keyword_arguments_whose_names_say_which_matrix_is_which(swap: bool, outcome: str) -> None:
    matrices = {name: torch.randn(8, 8).double() for name in ("Wqs", "Wks", "Wvs")}

    def make() -> tuple[object, dict[str, Tensor]]:
        inputs = {"tokens": torch.randn(2, 4, 8).double(), "context": torch.randn(2, 6, 8).double()}
        return partial(cross_attend, swap=swap), {**inputs, **matrices}

    verdict = attn_exp.check(make)
    assert verdict.outcome == outcome and set(verdict.mistakes) == ({"queries_keys_swapped"} if swap else set()), (
        verdict
    )


class OfPlaces(layers.Base):
    """Logits depend on a learned table of places, and on queries: nothing here defines that."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.places = nn.Parameter(torch.randn(64, self.head_dim))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        logits = q @ (k + self.places[: x.shape[1]]).mT / math.sqrt(self.head_dim)
        result: Tensor = self.out_proj((logits.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))
        return result


def test_what_the_definition_has_no_place_for_is_not_verified_rather_than_wrong() -> None:
    verdict = attn_exp.check(OfPlaces)
    assert verdict.outcome == "not verified" and "`places`" in verdict.not_verified[0], verdict
