"""The smallest input of a layer: what its lines give when they are pasted is what they say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import attn_exp  # noqa: E402
from attn_exp.diagnosis.asking.repeat import is_plain_value  # noqa: E402
from attn_exp.experiment.verdict import Smallest  # noqa: E402

LAYER = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, dim, heads=4, dropout=0.1):
        super().__init__()
        self.heads, self.drop = heads, nn.Dropout(dropout)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        b, t, d = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT SCALED
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -torch.inf)
        MASKED
        return self.proj((self.drop(scores.softmax(AXIS)) @ v).transpose(1, 2).reshape(b, t, d))
"""


def written(
    path: Path, name: str, *, scaled: str = "* q.shape[-1] ** -0.5", masked: str = "pass", axis: int = -1
) -> str:
    """Write a layer into a file, and return by what name it is checked."""
    text = LAYER.replace("SCALED", scaled).replace("MASKED", masked).replace("AXIS", str(axis))
    (path / f"{name}.py").write_text(text)
    return f"{path / name}.py:Attention"


def pasted(small: Smallest, names: dict[str, Any] | None = None) -> list[float]:
    """Run the lines of a smallest input, and return the first numbers of what they give for their token."""
    *lines, call = small.python.splitlines()
    known: dict[str, Any] = {} if names is None else names
    for name in ("mine", "other"):
        sys.modules.pop(name, None)
    with torch.no_grad():
        exec("\n".join([*lines, f"given = {call}"]), known)
    row = int(small.mine.partition(" for token ")[2] or 0)
    return [round(float(one), 3) for one in known["given"][0, row, :6]]


def numbers(said: str) -> list[float]:
    """Return the numbers of what a layer is said to give."""
    return [round(float(one), 3) for one in said.partition("]")[0].strip("[").replace(", ...", "").split(",")]


@pytest.fixture(autouse=True)
def _imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the files of a test be imported, as they are where a reader stands in their folder."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)


@pytest.mark.parametrize("wrong", [{"scaled": ""}, {"axis": -2}, {"scaled": "* 0.9 * q.shape[-1] ** -0.5"}])
def test_what_a_wrong_layer_is_said_to_give_its_lines_give(tmp_path: Path, wrong: dict[str, Any]) -> None:
    verdict = attn_exp.check(written(tmp_path, "mine", **wrong), quick=True)
    small = verdict.smallest
    assert small is not None
    assert pasted(small) == pytest.approx(numbers(small.mine), rel=1e-2, abs=2e-3)
    assert numbers(small.mine) != pytest.approx(numbers(small.right), rel=1e-3, abs=1e-3)


def test_what_is_right_is_what_the_same_layer_gives_once_it_is_mended(tmp_path: Path) -> None:
    verdict = attn_exp.check(written(tmp_path, "mine", scaled=""), quick=True)
    assert verdict.smallest is not None
    written(tmp_path, "mine")
    assert pasted(verdict.smallest) == pytest.approx(numbers(verdict.smallest.right), rel=1e-2, abs=2e-3)


def test_what_nobody_can_import_or_write_is_not_shown(tmp_path: Path) -> None:
    known: dict[str, Any] = {}
    exec(LAYER.replace("SCALED", "").replace("MASKED", "pass").replace("AXIS", "-1"), known)

    within = type("Within", (known["Attention"],), {"__qualname__": "made.<locals>.Within"})
    verdict = attn_exp.check(within, quick=True)
    assert verdict.mistakes == ("no_scale",) and verdict.smallest is None
    assert is_plain_value((1, 0.5, "a", None)) and not is_plain_value([float("inf")])


def test_a_layer_that_is_made_keeps_its_numbers(tmp_path: Path) -> None:
    known: dict[str, Any] = {}
    exec(LAYER.replace("SCALED", "").replace("MASKED", "pass").replace("AXIS", "-1"), known)
    layer = known["Attention"](16, 2)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    assert not attn_exp.check(layer, quick=True).passed
    assert all(bool((before[name] == value).all()) for name, value in layer.state_dict().items())


OF_ONE_HEAD = """
from torch import nn

class Attention(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(input_size, hidden_size) for _ in range(3))

    def forward(self, x):
        return (self.q(x) @ self.k(x).mT).softmax(-1) @ self.v(x)
"""


def test_a_size_that_the_check_exchanged_stands_in_the_lines(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OF_ONE_HEAD)
    small = attn_exp.check(f"{tmp_path / 'mine.py'}:Attention", quick=True).smallest
    assert small is not None and "input_size=" in small.python and "hidden_size=" in small.python
    assert pasted(small) == pytest.approx(numbers(small.mine), rel=1e-2, abs=2e-3)
