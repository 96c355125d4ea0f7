"""Every recipe of `docs/extend.md` adds its files to a copy of the project and nothing else, and everything finds them.

The tests of all members run once, in a copy with all recipes; the page's own test runs its commands.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.produce import changed
from tests import ROOT

FILE = re.compile(r"^```(?P<kind>python|yaml|diff) (?P<path>\S+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
SECTIONS = re.split(r"\n## (?!\{)", (ROOT / "docs/extend.md").read_text(encoding="utf-8"))[1:]  # no template's heading
RECIPES = {section.splitlines()[0]: section for section in SECTIONS if FILE.search(section)}
MEMBERS = {
    "tests/test_house.py": "knows_a_rule or peaks or sines or thread or extremes",
    "tests/rules/test_examples.py": "strided or kerple or temperature or relu",
    "tests/forms/test_oracle_matrix.py": "einsum or yaml or looped-1-1-3 or matrix-1-1-3",
    "tests/forms/test_properties.py": "einsum",
    "tests/forms/test_fuzz.py": "einsum or answer_differs",
    "tests/problem/test_generators.py": "minimal",
    "tests/experiment/test_documents.py": "sines",
    "tests/experiment/test_ruled_runs.py": "every_yaml",
    "tests/experiment/test_contracts.py": "a_check_shows or every_metric",
    "tests/experiment/test_measures.py": "every_metric",
    "tests/experiment/test_checks.py": "every_check",
    "tests/report/test_figures.py": "equal_figures",
    "tests/sweeps/test_sweep.py": "engines_workers",
}
"""The tests that ask something of every member, and which of them ask the new ones."""


def added(folder: Path, *sections: str) -> Path:
    """Copy the project and add what some recipes add: files, none of which may be there already, and lines of files.

    What is compiled of it is copied too: it is as old as its source, and each command would compile all of it anew.
    """
    for part in ("attn_exp", "conf", "tests"):
        shutil.copytree(ROOT / part, folder / part)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for kind, path, body in FILE.findall("\n".join(sections)):
        text = changed((folder / path).read_text(encoding="utf-8"), body) if kind == "diff" else body
        with (folder / path).open("w" if kind == "diff" else "x", encoding="utf-8") as file:
            file.write(text)
    return folder


def run(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the page in a copy of the project."""
    words = re.sub(r"(^|&& )python ", rf"\1{sys.executable} ", command)
    words = re.sub(r"(^|&& )attn-exp ", rf"\1{sys.executable} -m attn_exp ", words)
    environment = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "100"}
    return subprocess.run(
        ["bash", "-c", words], cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=600
    )


def run_tests(folder: Path, files: str, only: str) -> subprocess.CompletedProcess[str]:
    """Run some tests of a copy."""
    return run(folder, f"python -m pytest {files} --all -n0 -q -rA -p no:cacheprovider -k '{only}'")


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_is_at_most_one_file_of_python_and_one_of_yaml(title: str) -> None:
    """A column is said in one file and computed in another, a command has its line; what is tried does not count."""
    paths = {path for _, path, _ in FILE.findall(RECIPES[title]) if path.startswith(("attn_exp/", "conf/"))}
    suffixes = sorted(Path(path).suffix for path in paths)
    assert suffixes in ([".py"], [".py", ".yaml"], [".py", ".py"] if title in ("A column", "A command") else [])


def test_the_last_section_names_the_tests_of_every_member() -> None:
    named = set(re.findall(r"`(tests/\S+\.py)`", SECTIONS[-1]))
    assert set(MEMBERS) <= named
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []


@pytest.mark.long
def test_the_tests_of_every_member_pass_with_all_of_them(tmp_path: Path) -> None:
    folder = added(tmp_path, *RECIPES.values())
    done = run_tests(folder, " ".join(MEMBERS), " or ".join(MEMBERS.values()))
    assert done.returncode == 0, done.stdout
    passed = re.findall(r"^PASSED \S+\[(\S+)\]$", done.stdout, re.MULTILINE)
    for name in (
        "mask-strided",
        "score-kerple",
        "position-temperature",
        "normalizer-relu",
        "einsum",
        "shares",
        "peaks.py",
        "sines.py",
        "minimal",
        "sines",
    ):
        assert any(name in ids for ids in passed), name
    listed = run(folder, "python -m attn_exp --help").stdout
    for name in (
        "strided",
        "kerple",
        "temperature",
        "relu",
        "einsum",
        "shares",
        "sines",
        "minimal",
        "thread",
        "sharpest",
    ):
        assert name in listed, name


@pytest.mark.long
def test_a_mask_with_a_wrong_formula_or_a_short_yaml_is_noticed(tmp_path: Path) -> None:
    folder = added(tmp_path, RECIPES["A mask"])
    path = folder / "attn_exp/rules/masks/strided.py"
    path.write_text(path.read_text(encoding="utf-8").replace("== 0", "== 1"), encoding="utf-8")
    (folder / "conf/mask/strided.yaml").write_text("strided: {}\n", encoding="utf-8")
    done = run_tests(folder, "tests/rules/test_examples.py tests/forms/test_oracle_matrix.py", "strided or yaml")
    assert "what_its_file_draws[mask-strided]" in done.stdout
    assert "test_every_rule_has_a_yaml_that_lists_its_settings" in done.stdout


@pytest.mark.long
def test_a_column_more_is_in_every_table_and_runs_of_before_open(tmp_path: Path) -> None:
    """Its numbers stand in a run and in a sweep that computes seeds as one; the page says that it cannot follow."""
    folder = added(tmp_path, RECIPES["A column"])
    assert run(ROOT, f"python -m attn_exp output_dir={folder}/before").returncode == 0
    said = run(folder, "python -m attn_exp seed=1 && python -m attn_exp -m seed=1,2 && attn-exp report before/latest")
    assert said.returncode == 0, said.stderr
    assert re.search(r"^matrix +A .* (0\.\d{4})$", said.stdout, re.MULTILINE)
    (table,) = folder.glob("outputs/sweeps/*/results.csv")
    lines = [line.split(",") for line in table.read_text(encoding="utf-8").splitlines()]
    alone = (folder / "outputs/latest/comparison.csv").read_text(encoding="utf-8").splitlines()
    assert [line[-1] for line in lines[:5]] == [line.split(",")[-1] for line in alone]
    found = {round(float(line[-1]), 12) for line in lines[1:]}  # forms may differ in the last digit
    assert len(found) == 4  # of two seeds, and one head or two: no number stands for another
    assert 'data-column="lead"' in (folder / "outputs/latest/report.html").read_text(encoding="utf-8")
    assert (folder / "before/latest/report.html").is_file()


@pytest.mark.long
def test_a_setting_out_of_bounds_is_refused_in_one_line(tmp_path: Path) -> None:
    wrong = run(added(tmp_path, RECIPES["A mask"]), "python -m attn_exp mask=strided mask.strided.step=0")
    assert wrong.stderr == "attn_exp: error: mask.strided.step=0: expected a whole number of at least 1\n"
