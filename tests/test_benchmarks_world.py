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


@pytest.mark.parametrize(
    ("names", "expected", "passed", "grade"),
    [
        (["no_scale"], "no_scale", False, world.FULL),
        (["scale_by_d"], "scale_twice|scale_by_d", False, world.FULL),
        (["no_scale"], "no_scale mask_ignored", False, world.PART),
        (["no_scale"], "no_scale -", False, world.PART),
        (["no_scale", "mask_ignored"], "no_scale", False, world.WRONG),
        (["mask_ignored"], "-", False, world.WRONG),
        ([], "no_scale", False, world.UNEXPLAINED),
        (["nan_leaks"], "no_scale", True, world.UNSEEN),
    ],
)
def test_names_tell_all_a_part_or_something_else(names: list[str], expected: str, passed: bool, grade: str) -> None:
    assert world.grade_of_names(names, expected, passed) == grade


@pytest.mark.parametrize(
    ("kind", "verdict", "grade"),
    [
        ("right", {"outcome": "right", "mistakes": ["nan_leaks"]}, world.RIGHT),
        ("right", {"outcome": "not verified", "right_under": "convention=torch_mha"}, world.OPEN),
        ("right", {"outcome": "wrong", "mistakes": []}, world.ALARM),
        ("right", {"outcome": "wrong", "mistakes": ["no_scale"]}, world.WRONG),
        ("right", {}, world.OPEN),
        ("wrong", {"outcome": "not verified", "right_under": "-", "alike": [["mask_inverted"]]}, world.FULL),
        ("wrong", {"outcome": "not verified"}, world.OPEN),
        ("wrong", {"outcome": "right"}, world.UNSEEN),
    ],
)
def test_a_verdict_is_graded_by_its_outcome(kind: str, verdict: dict[str, object], grade: str) -> None:
    row = {"file": "a", "name": "a", "right_or_wrong": kind, "expected": "mask_inverted"}
    assert world.graded(row, world.Checked(1, 0.1, verdict, ""))["grade"] == grade


@pytest.mark.parametrize(
    ("stage", "expected", "grade"),
    [
        ("logits", "no_scale", world.LOCATED),
        ("logits", "heads_not_transposed", world.LOCATED),
        ("logits", "mask_ignored|softmax_twice", world.UNEXPLAINED),
        ("masked", "- mask_ignored", world.LOCATED),
        ("weights", "-", world.UNEXPLAINED),
        ("", "no_scale", world.UNEXPLAINED),
    ],
)
def test_a_bug_without_a_name_is_located_by_its_stage(stage: str, expected: str, grade: str) -> None:
    row = {"file": "a", "name": "a", "right_or_wrong": "wrong", "expected": expected}
    verdict = {"outcome": "wrong", "mistakes": [], "stage": stage}
    assert world.graded(row, world.Checked(1, 0.1, verdict, ""))["grade"] == grade


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
