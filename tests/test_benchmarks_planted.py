"""Each rule of `benchmarks/planted.py` finds its place in a layer as people write it, and changes what that answers."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import planted

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")

LAYER = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = nn.Linear(24, 24), nn.Linear(24, 12), nn.Linear(24, 12)
        self.out_proj = nn.Linear(24, 24)

    def forward(self, x, bias_mask):
        b, t, m = x.shape
        q = self.q_proj(x).view(b, t, 4, 6).transpose(1, 2)
        k = self.k_proj(x).view(b, t, 2, 6).transpose(1, 2).repeat_interleave(2, dim=1)
        v = self.v_proj(x).view(b, t, 2, 6).transpose(1, 2).repeat_interleave(2, dim=1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(6)
        scores = scores + bias_mask
        causal = torch.tril(torch.ones(t, t)) == 0
        scores = scores.masked_fill(causal, -1e9)
        attn = F.softmax(scores, dim=-1)
        attn = F.dropout(attn, p=0.1, training=self.training)
        out = torch.matmul(attn, v).transpose(1, 2).contiguous().view(b, t, m)
        out = self.out_proj(out)
        return out
"""
SAME_SIZE = LAYER.replace("nn.Linear(24, 12)", "nn.Linear(24, 24)").replace("2, 6)", "4, 6)").replace(
    ".repeat_interleave(2, dim=1)", ""
)  # fmt: skip
OTHERS = {"keys_of_queries": SAME_SIZE, "values_of_queries": SAME_SIZE}


def answer(code: str) -> Any:
    space: dict[str, Any] = {}
    exec(code, space)
    torch.manual_seed(3)
    layer, x = space["Layer"]().double().eval(), torch.randn(2, 5, 24, dtype=torch.float64)
    far = torch.triu(torch.ones(5, 5), -1).log()  # each query sees the last key before it, and later ones
    return layer(x, far.clamp(min=-3.0))


@pytest.mark.parametrize("name", planted.RULES)
def test_a_planted_mistake_changes_the_answer(name: str) -> None:
    right = OTHERS.get(name, LAYER)
    wrong = planted.planted(right, planted.RULES[name][1])
    assert wrong is not None
    one, other = answer(right), answer(wrong)
    assert one.shape == other.shape and not torch.allclose(one, other)


def test_what_a_rule_is_not_about_stays() -> None:
    assert planted.planted("def f(q, k, v):\n    return q + k + v", planted.without_mask) is None


def test_a_folder_of_planted_files_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "0001_layer.py").write_text(LAYER)
    (tmp_path / "0002_wrong.py").write_text(LAYER)
    rows = ["0001_layer.py,Layer,right,,,torch", "0002_wrong.py,Layer,bug,no_scale,,torch"]
    (tmp_path / "truth.csv").write_text("\n".join(["file,name,right_or_wrong,expected,words,framework", *rows]))
    monkeypatch.setattr(sys, "argv", ["planted.py", str(tmp_path), str(tmp_path / "out"), "--each", "1"])
    planted.main()
    with (tmp_path / "out" / "truth.csv").open() as file:
        made = list(csv.DictReader(file))
    assert [row["expected"] for row in made] == [names for names, _ in planted.RULES.values()]
    assert all((tmp_path / "out" / row["file"]).exists() and row["right_or_wrong"] == "bug" for row in made)


def test_a_folder_of_which_nothing_is_known_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["planted.py", str(tmp_path), str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="2"):
        planted.main()
    assert "holds no truth.csv" in capsys.readouterr().err
