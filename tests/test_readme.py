"""The README is a screen: what it is, how to begin, one picture, and four commands, each of which is run here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

README = ROOT / "README.md"
MINE = """import numpy as np


def attention(q, k, v, mask):
    scores = np.where(mask, q @ np.swapaxes(k, -1, -2) / q.shape[-1], -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v
"""
"""A causal attention that divides by d."""
SAID = {
    "run": "multi_head differs from looped by up to",
    "sweep": "scale=true instead of false raises the entropy by",
    "check": "Its mistake is scale_by_d",
    "sheet": "sheet.html",
}
"""What each of the four commands says."""


def commands() -> dict[str, str]:
    """Return the four commands of the README, by what they are."""
    text = README.read_text(encoding="utf-8")
    return {kind: command for command, kind in re.findall(r"^attn-exp (.*?) +# (\w+):", text, re.MULTILINE)}


@pytest.mark.long
@pytest.mark.parametrize("kind", SAID)
def test_each_of_the_four_commands_runs(kind: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    command = ["bash", "-c", f"{sys.executable} -m attn_exp {commands()[kind]}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == (kind == "check"), done.stderr
    assert SAID[kind] in done.stdout


def test_there_are_four_commands_and_one_picture() -> None:
    assert list(commands()) == list(SAID)
    (picture,) = re.findall(r'<img src="([^"]*)"', README.read_text(encoding="utf-8"))
    assert (ROOT / picture).is_file()


def test_ci_runs_the_readmes_own_test_command() -> None:
    found = re.findall(r"^python3 -m venv .*pytest$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(found) == 1
    assert "grep -m 1 -E '^python3 -m venv .*pytest$' README.md" in (ROOT / ".ci/run").read_text(encoding="utf-8")


def test_ci_runs_the_long_tests_too() -> None:
    assert '"${test_command##* && } --all' in (ROOT / ".ci/run").read_text(encoding="utf-8")


def test_what_it_is_is_a_screen_and_every_page_that_it_names_is_there() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.split("\n## ")[0].splitlines()) <= 32
    assert len(text.splitlines()) <= 50
    pages = re.findall(r"[^!]\[[^\]]*\]\((?!http)([^)]*)\)", text)
    assert len(pages) >= 20
    assert [page for page in pages if not (ROOT / page).is_file()] == []
