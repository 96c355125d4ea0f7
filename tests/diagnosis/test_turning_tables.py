"""Layers that are given the cosines and sines of rotary positions by their caller."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import torch
from torch import nn

import attn_exp
from attn_exp.diagnosis.calling.turning_tables import Turning
from attn_exp.errors import UserError
from attn_exp.experiment.verdict import HELD
from attn_exp.rules.positions.rope import Rope

INTERLEAVED = "position=rope position.rope.interleaved=true"


def in_halves(heads: Any, cos: Any, sin: Any) -> Any:
    one, other = heads.chunk(2, -1)
    return heads * cos + torch.cat([-other, one], -1) * sin


class Rotary(nn.Module):
    """What the layers below share; `turned` says which sides are turned."""

    turned = "qk"

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads = num_heads
        self.sides = nn.ModuleDict({f"{side}_proj": nn.Linear(dim, dim, bias=False) for side in "qkvo"})

    def attended(self, x: Any, cos: Any, sin: Any) -> Any:
        made = {side: self.sides[f"{side}_proj"](x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in "qkv"}
        q, k, v = (self.turn(made[side], cos, sin) if side in self.turned else made[side] for side in "qkv")
        said = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return self.sides["o_proj"](said.transpose(1, 2).flatten(2))

    def turn(self, heads: Any, cos: Any, sin: Any) -> Any:
        return in_halves(heads, cos, sin)


class OfTwoTables(Rotary):
    """Cosines and sines `[t d]`."""

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        return self.attended(x, cos, sin)


class OfAPair(Rotary):
    """Both in one argument, `[b t d]`, as Llama's layers in Transformers take them."""

    def forward(self, x: Any, position_embeddings: Any) -> Any:
        return self.attended(x, *(table.unsqueeze(1) for table in position_embeddings))


class OfAngles(Rotary):
    """The angles themselves."""

    def forward(self, x: Any, rotary_pos_emb: Any) -> Any:
        return self.attended(x, rotary_pos_emb.cos(), rotary_pos_emb.sin())


class OfComplex(Rotary):
    """Complex numbers `[t d/2]`, which turn neighbours."""

    def forward(self, x: Any, freqs_cis: Any) -> Any:
        return self.attended(x, freqs_cis, None)

    def turn(self, heads: Any, cos: Any, sin: Any) -> Any:
        pairs = torch.view_as_complex(heads.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * cos).flatten(-2)


class OfNeighbours(OfComplex):
    """Cosines and sines beside each other, `[t d/2 2]`."""

    def forward(self, x: Any, freqs_cis: Any) -> Any:
        return self.attended(x, torch.view_as_complex(freqs_cis), None)


class OfAPart(OfComplex):
    """The second half of each head alone is turned, and it may do without a table."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__(dim, num_heads)
        self.qk_rope_head_dim = dim // num_heads // 2

    def forward(self, x: Any, position_embeddings: Any = None) -> Any:
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
        (OfTwoTables, "position=rope"), (OfAPair, "position=rope"), (OfAngles, "position=rope"),
        (OfComplex, INTERLEAVED), (OfNeighbours, INTERLEAVED),
    ],
)  # fmt: skip
def test_tables_hold_the_angles_that_are_asked_for(kind: Any, words: str) -> None:
    assert attn_exp.check(kind, *words.split(), quick=True).passed
    assert attn_exp.check(kind, *words.split(), "position.rope.base=500", quick=True).passed


def test_a_table_for_a_part_of_each_head_is_as_wide_as_that_part() -> None:
    assert not attn_exp.check(OfAPart, quick=True).is_wrong


@pytest.mark.parametrize("kind", [OfTwoTables, OfComplex])
def test_a_layer_is_asked_with_its_tables_though_nobody_asks_for_positions(kind: Any) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.passed
    assert ("with rotary tables", HELD) in [(one.rung, one.state) for one in verdict.findings]


def test_what_tables_turn_wrongly_is_named_though_nobody_asks_for_positions() -> None:
    assert attn_exp.check(ValuesToo, quick=True).mistakes == ("rope_on_values",)
    verdict = attn_exp.check(QueriesAlone, quick=True)
    assert verdict.outcome == "not verified" and "`cos`" in str(verdict)
    assert attn_exp.check(QueriesAlone, "position=rope", quick=True).is_wrong


def test_angles_are_those_of_the_paper() -> None:
    """Pair i of a head of 4 is turned by `p / base^(i / 2)`: at place 3 with base 100 by 3 and by 0.3."""
    halves, neighbours = (Turning(Rope(base=100.0, interleaved=pairs), 4) for pairs in (False, True))
    for turning, row in ((halves, [3.0, 0.3, 3.0, 0.3]), (neighbours, [3.0, 3.0, 0.3, 0.3])):
        whole, pairs = turning.angles(4, 4), turning.angles(4, 2)
        assert whole is not None and pairs is not None
        np.testing.assert_allclose(whole[3], row)
        np.testing.assert_allclose(pairs[3], [3.0, 0.3])
    assert halves.angles(4, 3) is None


def test_heads_of_an_odd_size_that_cannot_be_turned_are_one_clear_line() -> None:
    with pytest.raises(UserError, match="rope turns pairs, but 5 of the 5 numbers of a head are to be turned"):
        Rope().turn(np.ones((1, 1, 2, 5)), np.arange(2))
