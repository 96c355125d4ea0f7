"""The smallest input that fails: its lines of Python give the numbers that the check prints."""

from __future__ import annotations

import ast
import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.arrays import Array
from attn_exp.experiment.verdict import Smallest

OWN = """
import numpy as np
from tests.diagnosis.functions import raw, softmax

def unscaled(q, k, v, mask=None):
    return softmax(raw(q, k) if mask is None else np.where(mask, raw(q, k), -np.inf)) @ v

def deep(q, k, v):
    return np.stack([unscaled(q, k, v)] * 2, axis=-1)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    Path("own.py").write_text(OWN)


def numbers(printed: str) -> Array:
    """Return the numbers of a printed list, in which a function may have put NaN."""
    return np.asarray(ast.literal_eval(printed.replace("nan", "None")), np.float64)


@pytest.mark.long
def test_a_wrong_shape_is_said() -> None:
    small = attn_exp.check("own.py:deep", quick=True).smallest
    assert small is not None
    assert (small.mine, small.right) == (
        "[[[[[1.0, 1.0]]]]], of shape [1, 1, 1, 1, 2]",
        "[[[[1.0]]]], of shape [1, 1, 1, 1]",
    )


LAYER = """
from torch import nn
from tests.diagnosis.layers import merge, split

class Attention(nn.Module):
    def __init__(self, input_size, hidden_size, heads=4, dropout=0.1):
        super().__init__()
        self.heads, self.drop = heads, nn.Dropout(dropout)
        self.qkv, self.proj = nn.Linear(input_size, 3 * hidden_size), nn.Linear(hidden_size, hidden_size)

    def forward(self, x):
        q, k, v = (split(one, self.heads) for one in self.qkv(x).chunk(3, -1))
        return self.proj(merge(self.drop((q @ k.mT SCALED).softmax(AXIS)) @ v))
"""
needs_torch = pytest.mark.skipif(not find_spec("torch"), reason="PyTorch is not installed")


def write(scaled: str = "* q.shape[-1] ** -0.5", axis: int = -1) -> str:
    """Write a layer into a file, and return by what name it is checked."""
    Path("mine.py").write_text(LAYER.replace("SCALED", scaled).replace("AXIS", str(axis)))
    return "mine.py:Attention"


def paste(small: Smallest) -> list[float]:
    """Run the lines of a smallest input, and return the first numbers of what they give for their token."""
    *lines, call = small.python.splitlines()
    known: dict[str, Any] = {}
    sys.modules.pop("mine", None)
    with importlib.import_module("torch").no_grad():
        exec("\n".join([*lines, f"given = {call}"]), known)
    row = int(small.mine.partition(" for token ")[2] or 0)
    return [float(one) for one in known["given"][0, row, :6]]


def first_of(said: str) -> list[float]:
    return [float(one) for one in said.partition("]")[0].strip("[").replace(", ...", "").split(",")]


@needs_torch
@pytest.mark.parametrize("wrong", [{"scaled": ""}, {"axis": -2}, {"scaled": "* 0.9 * q.shape[-1] ** -0.5"}])
def test_what_a_layer_is_said_to_give_its_lines_give_and_what_is_right_once_it_is_mended(wrong: dict[str, Any]) -> None:
    small = attn_exp.check(write(**wrong), quick=True).smallest
    assert small is not None and "input_size=" in small.python and "hidden_size=" in small.python
    assert paste(small) == pytest.approx(first_of(small.mine), rel=1e-2, abs=2e-3)
    assert first_of(small.mine) != pytest.approx(first_of(small.right), rel=1e-3, abs=1e-3)
    write()
    assert paste(small) == pytest.approx(first_of(small.right), rel=1e-2, abs=2e-3)


@needs_torch
def test_a_class_that_nobody_can_import_has_no_lines_and_a_layer_that_is_made_keeps_its_numbers() -> None:
    known: dict[str, Any] = {}
    exec(LAYER.replace("SCALED", "").replace("AXIS", "-1"), known)
    within = type("Within", (known["Attention"],), {"__qualname__": "made.<locals>.Within"})
    verdict = attn_exp.check(within, quick=True)
    assert verdict.mistakes == ("no_scale",) and verdict.smallest is None
    layer = known["Attention"](16, 16, 2)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    assert not attn_exp.check(layer, quick=True).passed
    assert all(bool((before[name] == value).all()) for name, value in layer.state_dict().items())
