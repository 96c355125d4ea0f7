"""A column more costs two files: its field, and the line where it is measured, for runs and sweeps over seeds alike."""

from __future__ import annotations

import csv
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

FIELD = '    median_weight: Annotated[float, Column(195, meaning="a mean of medians", summed=True)] = float("nan")\n'
MEASURED = '        "median_weight": means(np.median(weights, axis=-1)),\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of the project with a column of its own, and a run that was written before."""
    for part in ("attn_exp", "conf"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "tests/runs/earlier/default", tmp_path / "before")
    put_before(tmp_path / "attn_exp/experiment/row.py", "    note: Annotated[", FIELD)
    put_before(tmp_path / "attn_exp/experiment/measuring.py", '        "row_sum_error": row_sum', MEASURED)
    return tmp_path


def put_before(file: Path, mark: str, text: str) -> None:
    """Insert a piece of text before the only place where a mark stands."""
    source = file.read_text(encoding="utf-8")
    assert source.count(mark) == 1
    file.write_text(source.replace(mark, text + mark), encoding="utf-8")


def command(project: Path, *words: str) -> None:
    """Run a command of the project, which must succeed."""
    environment = os.environ | {"PYTHONPATH": str(project)}
    line = [sys.executable, "-m", "attn_exp", *words]
    subprocess.run(line, cwd=project, env=environment, check=True, timeout=120, capture_output=True)


def lines(project: Path, pattern: str) -> list[dict[str, str]]:
    """Return the lines of the only table of that name."""
    [table] = project.glob(pattern)
    with table.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_new_column_is_measured_in_runs_and_for_all_seeds_of_a_sweep(project: Path) -> None:
    command(project, "seed=3", "variant=[matrix,scaled]", "report=none")
    command(project, "-m", "seed=range(5)", "variant=[matrix,scaled]", "report=none")
    run, sweep = lines(project, "outputs/runs/*/comparison.csv"), lines(project, "outputs/sweeps/*/results.csv")
    of_seed = [line for line in sweep if line["seed"] == "3"]
    assert [line["median_weight"] for line in of_seed] == [line["median_weight"] for line in run]
    assert not any(math.isnan(float(line["median_weight"])) for line in sweep)
    assert len({line["median_weight"] for line in sweep if line["variant"] == "matrix"}) == 5


def test_a_run_from_before_the_column_still_opens(project: Path) -> None:
    command(project, "report", "before")
    assert "median_weight" not in (project / "before/comparison.csv").read_text(encoding="utf-8")
