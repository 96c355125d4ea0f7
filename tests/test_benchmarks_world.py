"""The benchmark of other people's code: what a verdict is worth, and a folder of four files from end to end."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import world
from tests import ROOT
from tools import world as page

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


def test_a_row_of_the_page_says_what_was_measured_where_that_is_right_and_else_what_was_read() -> None:
    row = {
        "source": "karpathy/nanoGPT model.py commit 3adf61e154c3fe3fca428ad6bc3818b27a3b8291 licence MIT",
        "name": "CausalSelfAttention", "what_is_true": "causal; packed; rows without keys: uniform | dropout 0",
    }  # fmt: skip
    verdict = {"right_under": "mask=causal", "findings": [{"rung": "accuracy", "said": "it answers in float32"}]}
    made = page.cells(row, {"grade": page.RIGHT, "verdict": verdict})
    assert made[0] == "karpathy/nanoGPT `model.py` at 3adf61e154"
    assert made[2:6] == ("as it stands", "attention under `mask=causal`", "the mean of all values", "float32")
    other = page.cells(row, {"grade": world.ALARM, "verdict": verdict})
    assert other[2:6] == ("as it stands", "-", "the mean of all values", "-")
    assert page.cells(row, {"grade": world.UNCALLED})[2] == "not as it stands"
    own = "attention of the queries, keys and values that it makes of x in a way of its own"
    inside = {"computes": f"{own}, with convention=torch_mha: True hides", "right_under": "convention=torch_mha"}
    assert page.computes(inside) == f"{own} under `convention=torch_mha`"
    assert page.computes({"computes": "attention as it was asked for"}) == "attention"
    assert page.plain(row["what_is_true"]).endswith("uniform \\| dropout 0")
    assert page.origin("keras keras/src/layers/attention.py commit pip keras 3.15.1 licence MIT") == (
        "keras 3.15.1 `keras/src/layers/attention.py`"
    )
    assert page.origin("search result of an index that names no repository") == ""


def test_a_row_is_known_by_its_place_and_not_by_its_commit() -> None:
    name = "`Attention`"
    older, newer = (page.whose([f"openai/CLIP `model.py` at {commit}", name]) for commit in ("d05afc436d", "a9b1bf5"))
    assert older == newer != page.whose(["openai/CLIP `old.py` at d05afc436d", name])
    assert page.whose(["keras 3.14.0 `keras/src/a.py`", name]) == page.whose(["keras 3.15.1 `keras/src/a.py`", name])
    assert page.whose(["keras `keras/src/a.py`", name]) == page.whose(["keras 3.15.1 `keras/src/a.py`", name])
    assert page.whose(["keras 3.15.1 `keras/src/a.py`", name]) != page.whose(["keras 3.15.1 `keras/src/a.py`", "`B`"])
