"""Adding a mask takes what the README says: one file of at most 30 lines and one YAML."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

SECTION = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## Add a mask\n")[1].split("\n## ")[0]


def block(language: str) -> tuple[str, str]:
    """Return the path that the README names before a block, and what the block holds."""
    before, text = re.split(rf"```{language}\n", SECTION, maxsplit=1)
    return re.findall(r"`([\w/]+\.(?:py|yaml))`", before)[-1], text.split("```")[0]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Copy the project and add the README's mask to it."""
    for part in ("attn_exp", "conf", "tests"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path, text in (block("python"), block("yaml")):
        (tmp_path / path).write_text(text, encoding="utf-8")
    return tmp_path


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=120)


def test_the_file_has_at_most_thirty_lines() -> None:
    assert len(block("python")[1].splitlines()) <= 30
    assert block("python")[0] == "attn_exp/rules/masks/strided.py"
    assert block("yaml")[0] == "conf/mask/strided.yaml"


def test_it_runs_with_every_form_and_the_tests_include_it(project: Path) -> None:
    words = "report=none check=mask embeddings=random embeddings.tokens=5 mask=[causal,strided]"
    done = run(project, "attn_exp", *words.split(), "variant=[looped,matrix,decode]")
    assert done.returncode == 0, done.stderr
    assert "looped, matrix and decode compute the same function (A)" in done.stdout
    assert "x4 sees x0, x2 and x4" in done.stdout
    assert "strided" in run(project, "attn_exp", "--help").stdout
    wrong = run(project, "attn_exp", "mask=strided", "mask.strided.step=0")
    assert wrong.stderr == "attn_exp: error: mask.strided.step=0: expected a whole number of at least 1\n"
    files = ("tests/forms/test_oracle_matrix.py", "tests/rules/test_examples.py")
    options = ("-n0", "-q", "-p", "no:cacheprovider", "-k", "yaml or 1-1-3-3-4-4 or strided")
    assert run(project, "pytest", *files, *options).returncode == 0


def test_a_mask_with_a_wrong_formula_is_not_what_its_file_draws(project: Path) -> None:
    path = project / "attn_exp/rules/masks/strided.py"
    path.write_text(path.read_text(encoding="utf-8").replace("== 0", "== 1"), encoding="utf-8")
    done = run(
        project, "pytest", "tests/rules/test_examples.py", "-n0", "-q", "-p", "no:cacheprovider", "-k", "strided"
    )
    assert done.returncode == 1
    assert "what_its_file_draws[mask-strided]" in done.stdout


def test_the_tests_of_every_rule_notice_when_it_is_wrong(project: Path) -> None:
    (project / "conf/mask/strided.yaml").write_text("strided: {}\n", encoding="utf-8")
    done = run(
        project, "pytest", "tests/forms/test_oracle_matrix.py", "-n0", "-q", "-p", "no:cacheprovider", "-k", "yaml"
    )
    assert done.returncode == 1
    assert "step" in done.stdout
