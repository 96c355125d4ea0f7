"""The smallest input that fails: its lines of Python give the numbers that the check prints."""

from __future__ import annotations

import ast
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.arrays import Array

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
