"""`attn-exp runs` with settings, and each run as one flat record."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.sweeps.command import quickly


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs and a sweep."""
    folder = tmp_path_factory.mktemp("outputs")
    quickly(folder, "head=1", "mask=[causal,window]", "report=none", "variant=[matrix]")
    quickly(folder, "report=none", "variant=[matrix]")
    quickly(folder, "-m", "head=1,4", "report=none", "variant=[matrix]")
    return folder


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (["head=2"], ["run"]),  # which is the default
        (["head=1"], ["run", "sweep"]),
        (["head=4"], ["sweep"]),
        (["mask=causal"], ["run"]),
        (["mask.window.left=1", "head=1"], ["run"]),
        (["bias=false"], ["run", "run"]),
    ],
)
def test_settings_choose_runs_whether_typed_or_not(words: list[str], kinds: list[str], outputs: Path) -> None:
    told, _ = quickly(outputs, "runs", *words, "--json")
    assert sorted(json.loads(line)["kind"] for line in told.splitlines()) == kinds


def test_a_record_has_the_settings_and_the_numbers_of_a_run(outputs: Path) -> None:
    told, _ = quickly(outputs, "runs", "outputs", "mask=window", "--json")
    record = json.loads(told)
    assert record["run"] in quickly(outputs, "runs", "mask=window")[0]
    with (outputs / record["run"] / "comparison.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert record["metrics.matrix.entropy"] == float(row["entropy"])
    assert (record["params.head"], record["params.mask"], record["params.scale"]) == (1, "causal,window", True)
    assert not any(isinstance(value, list | dict) for value in record.values())
    told, _ = quickly(outputs, "runs", "--csv")
    lines = list(csv.DictReader(io.StringIO(told)))
    assert len(lines) == 3
    assert {line["metrics.matrix.entropy"] for line in lines} >= {row["entropy"], ""}


def test_what_fits_no_run_is_said(outputs: Path) -> None:
    assert quickly(outputs, "runs", "head=7")[0] == "outputs: none of 3 runs and sweeps has head=7\n"
    assert "unknown setting 'heads'; did you mean head?" in quickly(outputs, "runs", "heads=2", code=2)[1]
    assert "expected attn-exp runs [DIR]" in quickly(outputs, "runs", "--yaml", code=2)[1]


@pytest.mark.parametrize("file", ["comparison.csv", "run.json"])
def test_a_damaged_run_is_one_line(file: str, tmp_path: Path) -> None:
    quickly(tmp_path, "report=none", "variant=[matrix]")
    (path,) = (tmp_path / "outputs/runs").glob(f"*/{file}")
    text = path.read_text()
    path.write_text(f"{text}1,2\n" if file == "comparison.csv" else text.replace('"mask": ', '"mask": 3, "other": '))
    said = quickly(tmp_path, "runs", "--json", code=2)[1]
    assert "cannot be read (" in said and said.count("\n") == 1
