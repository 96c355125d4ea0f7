"""Layers that turn queries and keys by their positions, or add a bias for each distance; and mistakes in that."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import nn

from attn_exp.experiment.verdict import HELD
from tests.diagnosis.layers import Layer, hide_later

ROPE = ("position=rope", "mask=causal")
INTERLEAVED = "position=rope position.rope.interleaved=true"


def turn_halves(heads: Any, cos: Any, sin: Any) -> Any:
    one, other = heads.chunk(2, -1)
    return heads * cos + torch.cat([-other, one], -1) * sin


def rotate(heads: Any, base: float = 1e4, sign: int = 1, start: int = 0) -> Any:
    """Turn the halves of each head by the angles of RoPE."""
    speeds = base ** (-torch.arange(heads.shape[-1] // 2, dtype=torch.float64) / (heads.shape[-1] // 2))
    angles = sign * torch.cat([(torch.arange(heads.shape[2]) + start)[:, None] * speeds] * 2, -1)
    return turn_halves(heads, angles.cos(), angles.sin())


class Rotary(Layer):
    """Causal attention with RoPE; a subclass has one mistake in it."""

    is_causal = True

    def forward(self, x: Any) -> Any:
        q, k, v = self.place(*map(self.split, self.project(x)))
        scores = self.score(q, k)
        return self.output(self.weigh(hide_later(scores) if self.is_causal else scores) @ v)

    def place(self, q: Any, k: Any, v: Any) -> Any:
        return rotate(q), rotate(k), v


class MixedPairs(Rotary):
    def place(self, q: Any, k: Any, v: Any) -> Any:
        angles = torch.arange(q.shape[2])[:, None] * 1e4 ** (-torch.arange(0, q.shape[-1], 2) / q.shape[-1])
        cos, sin = angles.cos().repeat_interleave(2, -1), torch.cat([angles.sin()] * 2, -1)
        return turn_halves(q, cos, sin), turn_halves(k, cos, sin), v


class NotOnKeys(Rotary):
    def place(self, q: Any, k: Any, v: Any) -> Any:
        return rotate(q), k, v


class OnKeysBackwards(Rotary):
    def place(self, q: Any, k: Any, v: Any) -> Any:
        return rotate(q), rotate(k, sign=-1), v


class OnKeysOneLater(Rotary):
    def place(self, q: Any, k: Any, v: Any) -> Any:
        return rotate(q), rotate(k, start=1), v


class AnotherBaseForKeys(Rotary):
    def place(self, q: Any, k: Any, v: Any) -> Any:
        return rotate(q), rotate(k, 1e3), v


class OnValues(Rotary):
    def place(self, q: Any, k: Any, v: Any) -> Any:
        return rotate(q), rotate(k), rotate(v)


class NeighboursNotOnKeys(Rotary):
    """RoPE turns neighbouring numbers of the queries alone."""

    def place(self, q: Any, k: Any, v: Any) -> Any:
        angles = torch.arange(q.shape[2])[:, None] * 1e4 ** (-torch.arange(0, q.shape[-1], 2) / q.shape[-1])
        turned = torch.view_as_complex(q.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(angles.cos() ** 0, angles)
        return torch.view_as_real(turned).flatten(-2), k, v


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Rotary, ()), (OnValues, ("rope_on_values",)), (NeighboursNotOnKeys, ("position_missing",)), (MixedPairs, None),
        (NotOnKeys, None), (OnKeysBackwards, None), (OnKeysOneLater, None), (AnotherBaseForKeys, None),
    ],
)  # fmt: skip
def test_no_layer_with_a_mistake_in_its_positions_is_right(kind: Any, names: tuple[str, ...] | None) -> None:
    verdict = attn_exp.check(kind, *ROPE, quick=True)
    assert (verdict.outcome == "right") == (names == ()), verdict
    assert names in (None, verdict.mistakes), verdict


class NotCausal(Rotary):
    is_causal = False


class OnValuesNotCausal(OnValues):
    is_causal = False


class AnotherBase(NotCausal):
    def place(self, q: Any, k: Any, v: Any) -> Any:
        return rotate(q, 500.0), rotate(k, 500.0), v


@pytest.mark.long
def test_positions_that_nobody_asked_for_are_said() -> None:
    assert attn_exp.check(NotCausal, quick=True).right_under == "position=rope"
    assert not attn_exp.check(AnotherBase, quick=True).is_wrong
    assert not attn_exp.check(OnValuesNotCausal, quick=True).passed
    assert attn_exp.check(Layer, "position=rope", quick=True).mistakes == ("position_missing",)


# Cosines and sines, given by the caller


class OfTwoTables(Layer):
    """Cosines and sines `[t d]`; `turned` says which sides are turned."""

    turned = "qk"

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:  # type: ignore[override]
        return self.attended(x, cos, sin)

    def attended(self, x: Any, cos: Any, sin: Any) -> Any:
        q, k, v = (
            self.turn(part, cos, sin) if side in self.turned else part
            for side, part in zip("qkv", map(self.split, self.project(x)), strict=True)
        )
        return self.output(self.weigh(self.score(q, k)) @ v)

    def turn(self, heads: Any, cos: Any, sin: Any) -> Any:
        return turn_halves(heads, cos, sin)


class OfAPair(OfTwoTables):
    """Both in one argument, `[b t d]`, as Llama's layers in Transformers take them."""

    def forward(self, x: Any, position_embeddings: Any) -> Any:  # type: ignore[override]
        return self.attended(x, *(table.unsqueeze(1) for table in position_embeddings))


class OfAngles(OfTwoTables):
    """The angles themselves."""

    def forward(self, x: Any, rotary_pos_emb: Any) -> Any:  # type: ignore[override]
        return self.attended(x, rotary_pos_emb.cos(), rotary_pos_emb.sin())


class OfComplex(OfTwoTables):
    """Complex numbers `[t d/2]`, which turn neighbours."""

    def forward(self, x: Any, freqs_cis: Any) -> Any:  # type: ignore[override]
        return self.attended(x, freqs_cis, None)

    def turn(self, heads: Any, cos: Any, sin: Any) -> Any:
        pairs = torch.view_as_complex(heads.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * cos).flatten(-2)


class OfNeighbours(OfComplex):
    """Cosines and sines beside each other, `[t d/2 2]`."""

    def forward(self, x: Any, freqs_cis: Any) -> Any:  # type: ignore[override]
        return self.attended(x, torch.view_as_complex(freqs_cis), None)


class OfAPart(OfComplex):
    """The second half of each head alone is turned, and it may do without a table."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__(dim, num_heads)
        self.qk_rope_head_dim = dim // num_heads // 2

    def forward(self, x: Any, position_embeddings: Any = None) -> Any:  # type: ignore[override]
        return self.attended(x, position_embeddings.to(torch.complex128), None)

    def turn(self, heads: Any, cos: Any, sin: Any) -> Any:
        still, part = heads.chunk(2, -1)
        return torch.cat([still, super().turn(part, cos, sin)], -1)


class ValuesToo(OfTwoTables):
    turned = "qkv"


class QueriesAlone(OfTwoTables):
    turned = "q"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (OfTwoTables, "position=rope position.rope.base=500"), (OfAPair, "position=rope"), (OfAngles, "position=rope"),
        (OfComplex, INTERLEAVED), (OfNeighbours, INTERLEAVED),
    ],
)  # fmt: skip
def test_tables_hold_the_angles_that_are_asked_for(kind: Any, words: str) -> None:
    assert attn_exp.check(kind, *words.split(), quick=True).passed


@pytest.mark.parametrize("kind", [OfTwoTables, OfComplex])
def test_a_layer_is_asked_with_its_tables_though_nobody_asks_for_positions(kind: Any) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.passed
    assert ("with rotary tables", HELD) in [(one.question, one.state) for one in verdict.findings]


def test_what_tables_turn_wrongly_is_found_though_nobody_asks_for_positions() -> None:
    assert not attn_exp.check(OfAPart, quick=True).is_wrong
    assert attn_exp.check(ValuesToo, quick=True).mistakes == ("rope_on_values",)
    verdict = attn_exp.check(QueriesAlone, quick=True)
    assert verdict.outcome == "not verified" and "`cos`" in str(verdict)
    assert attn_exp.check(QueriesAlone, "position=rope", quick=True).is_wrong


# Layers that scale nothing and need not


class Normed(Rotary):
    """It norms queries and keys, and multiplies their product by nothing."""

    is_causal, is_normed = False, True

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        norm = nn.RMSNorm if self.is_normed else nn.Identity
        self.q_norm, self.k_norm = norm(d_model // num_heads), norm(d_model // num_heads)

    def place(self, q: Any, k: Any, v: Any) -> Any:
        return super().place(self.q_norm(q), self.k_norm(k), v)

    def score(self, q: Any, k: Any) -> Any:
        return q @ k.mT


class Unnormed(Normed):
    is_normed = False


class OfDistances(Layer):
    """It may be given a bias for each distance, as the layers of T5 behind the first are."""

    def forward(self, x: Any, position_bias: Any = None) -> Any:
        q, k, v = map(self.split, self.project(x))
        scores = q @ k.mT
        return self.output(self.weigh(scores if position_bias is None else scores + position_bias) @ v)


def test_a_layer_that_need_not_scale_is_right_with_a_scale_of_1() -> None:
    assert attn_exp.check(OfDistances, quick=True).right_under == "scale=1"


def test_norms_of_queries_and_keys_leave_the_scale_open() -> None:
    verdict = attn_exp.check(Normed, quick=True)
    assert verdict.outcome == "not verified" and verdict.not_verified[0].startswith("scale `q_norm` (it is learned")


def test_any_other_that_scales_nothing_has_lost_its_scale() -> None:
    assert attn_exp.check(Unnormed, quick=True).mistakes == ("no_scale",)


class WithBias(Layer):
    """A learned number for each pair of positions is added to the logits."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.table, self.spare = nn.Parameter(torch.randn(num_heads, 256, 256)), nn.Linear(d_model, d_model)

    def score(self, q: Any, k: Any) -> Any:
        return super().score(q, k) + self.table[:, : q.shape[2], : k.shape[2]]


class OfPlaces(Layer):
    """Logits depend on a learned table of places, and on queries: nothing here defines that."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.places = nn.Parameter(torch.randn(64, d_model // num_heads))

    def score(self, q: Any, k: Any) -> Any:
        return super().score(q, k + self.places[: k.shape[2]])


@pytest.mark.parametrize(("kind", "left"), [(WithBias, ("logit", "`spare.weight`")), (OfPlaces, ("`places`",))])
def test_what_the_definition_has_no_place_for_is_not_verified_rather_than_wrong(
    kind: type[Any], left: tuple[str, ...]
) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.outcome == "not verified" and all(one in str(verdict) for one in left), verdict
