"""The benchmark of other people's code: what a verdict is worth, and a folder of four files from end to end."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import world
from tests import ROOT

RIGHT = """
import numpy as np


def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v
"""


@pytest.mark.long
def test_a_folder_is_asked_file_by_file(tmp_path: Path) -> None:
    files = {
        "001_right.py": RIGHT,
        "002_no_scale.py": RIGHT.replace(" / np.sqrt(q.shape[-1])", ""),
        "003_exits.py": RIGHT.replace("scores = ", "raise SystemExit(3)\n    scores = "),
        "004_odd.py": "def attention(a):\n    return a\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    truth = [["file", "name", "framework", "right_or_wrong", "expected", "words"]]
    truth += [[name, "attention", "numpy", "right" if "right" in name else "wrong", "no_scale", ""] for name in files]
    with (tmp_path / "truth.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(truth)
    measured = subprocess.run(  # in a process of its own: it forks, which is for processes without threads
        [sys.executable, "benchmarks/check.py", "--world", str(tmp_path), "--csv", str(tmp_path / "table.csv")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    with (tmp_path / "table.csv").open(newline="", encoding="utf-8") as file:
        grades = {row["file"][:3]: row["grade"] for row in csv.DictReader(file)}
    assert grades == {"001": world.RIGHT, "002": world.FULL, "003": world.OPEN, "004": world.UNCALLED}
    assert "3 bugs" in measured.stdout, measured.stderr
    assert world.chosen("right/004_odd.py", "even") and not world.chosen("right/004_odd.py", "odd")
