"""What the reference checks a new position or normalizer by, and what a run says where it has nothing to check with."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from attn_exp.report.sentences import lead, summary
from tests.compose import comparison
from tests.experiment.test_conventions import BLIND, SMALL

NAME = "xposofatest"
"""A name that no file of a user's own has."""
XPOS = '''
"""xPos: rotary positions whose products also fade with distance (Sun et al. 2022, section 2.2)."""

import math
from dataclasses import dataclass

import numpy as np

from attn_exp.rules.positions.position import Position, Twin


@dataclass(frozen=True)
class XposOfATest(Position):
    """Pair i is turned by `n / 10000^(2i/d)`, and stretched by `zeta_i^n` in a query, by `zeta_i^-n` in a key."""

    relative = True

    gamma: float = 0.4

    def turn(self, heads, positions):
        return self.moved(heads, positions, 1)

    def turn_key(self, heads, positions):
        return self.moved(heads, positions, -1)

    def moved(self, heads, positions, sign):
        share = np.arange(0, heads.shape[-1], 2) / heads.shape[-1]
        angles = positions[:, None] / 10000**share
        zeta = ((share + self.gamma) / (1 + self.gamma)) ** (sign * positions[:, None])
        even, odd = heads[..., ::2], heads[..., 1::2]
        result = heads.copy()
        result[..., ::2] = zeta * (even * np.cos(angles) - odd * np.sin(angles))
        result[..., 1::2] = zeta * (even * np.sin(angles) + odd * np.cos(angles))
        return result
'''
XPOS_TWIN = """
    def twin(self):
        return Twin(turn=lambda numbers, place: self.one(numbers, place, 1),
                    turn_key=lambda numbers, place: self.one(numbers, place, -1))

    def one(self, numbers, place, sign):
        result, size = [], len(numbers)
        for pair in range(0, size, 2):
            zeta = math.exp(sign * place * math.log((pair / size + self.gamma) / (1 + self.gamma)))
            angle = place * math.exp(-pair / size * math.log(10000))
            point = zeta * complex(numbers[pair], numbers[pair + 1]) * complex(math.cos(angle), math.sin(angle))
            result += [point.real, point.imag]
        return result
"""
SQUARED = '''
"""Weights are the squares of what is above zero, over their sum."""

import numpy as np

from attn_exp.rules.normalizers.normalizer import Normalizer


def squared_of_a_test(masked, extra=None):
    squares = np.maximum(masked, 0) ** 2
    total = squares.sum(axis=-1, keepdims=True)
    return squares / np.where(total == 0, 1, total)


NORMALIZER = Normalizer(weigh=squared_of_a_test)
'''
RANDOM = ("embeddings=random", "embeddings.d_model=8", "variant=[looped,matrix,multi_head]")
Adding = Callable[[str, str, str], None]


@pytest.fixture
def adding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Adding]:
    """Return a function that adds a file to one group of rules, as if it lay in its folder."""
    before = set(sys.modules)

    def add(group: str, name: str, text: str) -> None:
        package = importlib.import_module(f"attn_exp.rules.{group}")
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])

    yield add
    for name in set(sys.modules) - before:
        if name.startswith("attn_exp.rules."):
            del sys.modules[name]


def test_a_new_position_with_a_twin_is_checked_with_every_form(adding: Adding) -> None:
    adding("positions", NAME, XPOS + XPOS_TWIN)
    compared = comparison(*RANDOM, f"+position.{NAME}.gamma=0.3", "mask=causal", "kv_head=1")
    assert all(row.error < 1e-13 and row.checked == 6 and not row.note for row in compared.rows)


def test_its_twin_tells_when_it_is_wrong(adding: Adding) -> None:
    adding(
        "positions", NAME, XPOS.replace("self.moved(heads, positions, -1)", "self.turn(heads, positions)") + XPOS_TWIN
    )
    assert comparison(*RANDOM, f"+position.{NAME}={{}}").rows[0].error > 1e-3


def test_a_position_without_a_twin_is_not_called_wrong(adding: Adding) -> None:
    adding("positions", NAME, XPOS)
    compared = comparison(*RANDOM, f"+position.{NAME}={{}}")
    for row in compared.rows:
        assert (row.checked, row.same_as) == (0, "A" if row.variant == "matrix" else row.same_as)
        assert np.isnan(row.error) and np.isnan(row.error_ulp) and not np.isnan(row.entropy)
        assert row.note == f"nothing was checked, since position={NAME} has no scalar version"
    assert f"matrix: nothing was checked, since position={NAME} has no scalar version" in summary(compared)
    assert "was not computed" not in summary(compared)
    assert lead(compared).endswith(". No variant was checked.")


def test_a_normalizer_without_a_twin_is_not_called_wrong(adding: Adding) -> None:
    adding("normalizers", "squared_of_a_test", SQUARED)
    row = comparison(*RANDOM, "normalizer=squared_of_a_test", "check=invariants").rows[1]
    assert row.checked == 0 and np.isnan(row.error) and row.normalizer == "squared_of_a_test"
    assert row.note == "nothing was checked, since normalizer=squared_of_a_test has no scalar version"


RULES = {
    "looped": "mask.array.values=[[1,0],[1,1]]", "matrix": "mask.array.values=[[1,1],[0,1]]",
    "scaled": "score.softcap.cap=1", "unscaled": "mask.array.values=[[1,0]]", "blockwise": "score.softcap.cap=2",
}  # fmt: skip


def test_variants_whose_rules_differ_in_one_number_have_their_own_reference() -> None:
    words = [f"+variant.{name}.{rule}" for name, rule in RULES.items()]
    rows = comparison(*RANDOM[:2], "embeddings.tokens=2", f"variant=[{','.join(RULES)}]", *words).rows
    assert len(rows) == len(RULES) and all(row.error < 1e-13 and row.checked == 2 for row in rows)


@pytest.mark.parametrize("convention", ["jax", "keras_attention", "keras_attention_float16"])
def test_a_row_without_keys_is_checked_under_each_convention(convention: str) -> None:
    (row,) = comparison(*BLIND, f"embeddings.k={SMALL}", f"convention={convention}", "variant=[matrix]").rows
    assert row.checked == 1 and row.error < 2e-6
