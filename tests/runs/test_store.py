"""What a run leaves on disk: whole, equal for equal configurations, and readable again."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_exp.config.schema import Config, read_config
from attn_exp.config.spelling import Repeat
from attn_exp.errors import UserError
from attn_exp.experiment.compare import compare
from attn_exp.experiment.executing import measure
from attn_exp.experiment.row import Run
from attn_exp.runs import records, store, trust

VARIANTS = {
    "looped": {"form": "looped", "head": 1},
    "multi_head": {"form": "matrix", "output_projection": True},
}


def config(**settings: Any) -> Config:
    given = {
        "embeddings": {"tokens": ["she", "likes", "coffee"], "vectors": [[0.2, 0.9], [0.8, 0.3], [0.4, 0.6]]},
        "projections": {"source": "normal"},
        "variant": VARIANTS,
        "bias": True,
        "report": {"tables": False, "figures": False, "pages": False},
    }
    return read_config(given | settings)


def a_run(**settings: Any) -> Run:
    chosen = config(**settings)
    comparison = compare(chosen)
    timings = measure(comparison.variants, comparison.problem)
    return Run(comparison, timings, store.describe_run(comparison, Repeat(), {"cpu": "any"}))


def test_a_run_reads_back_as_it_was(tmp_path: Path) -> None:
    run = a_run()
    again = store.load(store.save(run, tmp_path))
    assert again.comparison.config == run.comparison.config
    assert again.comparison.rows == run.comparison.rows
    assert again.comparison.distances == run.comparison.distances
    assert again.comparison.variants == run.comparison.variants
    assert again.timings == run.timings
    assert again.comparison.problem.tokens == ("she", "likes", "coffee")
    assert sorted(again.comparison.problem.projections) == ["W_k", "W_o", "W_q", "W_v", "b_k", "b_o", "b_q", "b_v"]
    for name, trace in run.comparison.traces.items():
        for (stage, before), (same, after) in zip(trace.stages(), again.comparison.traces[name].stages(), strict=True):
            assert stage == same
            np.testing.assert_array_equal(before, after)


def test_steps_and_rungs_are_read_back(tmp_path: Path) -> None:
    run = a_run()
    folder = store.save(run, tmp_path)
    again, before = store.load(folder).comparison, run.comparison
    assert str(again.steps) == str(before.steps)  # as texts: nan is not nan
    assert again.steps and again.rungs.keys() == before.rungs.keys() != set()
    for place, trace in before.rungs.items():
        for (name, array), (same, stored) in zip(trace.stages(), again.rungs[place].stages(), strict=True):
            assert name == same
            np.testing.assert_array_equal(array, stored)


def test_equal_configurations_give_equal_bytes(tmp_path: Path) -> None:
    folders = [store.save(a_run(), tmp_path) for _ in range(2)]
    for name in ("comparison.csv", "distances.csv", "steps.csv", "results.npz"):
        first, second = ((folder / name).read_bytes() for folder in folders)
        assert first == second, name


def test_runs_never_share_a_folder_and_latest_is_the_last(tmp_path: Path) -> None:
    run = a_run()
    folders = [store.save(run, tmp_path) for _ in range(5)]
    assert len(set(folders)) == 5
    assert (tmp_path / "latest").resolve() == folders[-1].resolve()


def test_an_output_folder_that_is_a_file_is_refused_before_computing(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(
        UserError, match=r"^output_dir=.*taken/runs: cannot be written to \(.*taken is not a writable folder\)$"
    ):
        store.check_writable(tmp_path / "taken" / "runs")


def reseal(folder: Path) -> None:
    """Let a run that somebody changed be sealed as it is now."""
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(trust.add_seal(about, folder, list(about["files"]))))


@pytest.mark.parametrize("name", ["comparison.csv", "distances.csv", "timings.csv", "results.npz"])
def test_a_file_that_changed_is_named(name: str, tmp_path: Path) -> None:
    folder = store.save(a_run(), tmp_path)
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(
        UserError, match=f"not a finished run that can be read \\({name} has changed since it was written"
    ):
        store.load(folder)


def test_a_description_that_changed_is_no_run(tmp_path: Path) -> None:
    folder = store.save(a_run(), tmp_path)
    text = (folder / "run.json").read_text()
    (folder / "run.json").write_text(text.replace('"head": 2', '"head": 1'))
    with pytest.raises(UserError, match="its description has changed since it was written"):
        store.load(folder)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here/runs").symlink_to(tmp_path / "foreign")
    with pytest.raises(UserError, match="is a link"):
        store.save(a_run(), tmp_path / "here")
    assert not list((tmp_path / "foreign").iterdir())


@dataclass(frozen=True)
class Cells:
    """Every kind of cell that a record may hold."""

    text: str
    flag: bool
    either: bool | float
    number: float
    count: int
    missing: int | None


HARD = [
    Cells("=1+1", True, False, 0.1 + 0.2, 3, None),
    Cells("'quoted", False, 0.25, math.inf, -1, 4),
    Cells('a,"b"\nc', True, True, 5e-324, 0, None),
    Cells("@x", True, 1.0, -0.0, 0, None),
]


def test_records_read_back_exactly() -> None:
    assert records.parse_records(Cells, records.format_records(Cells, HARD)) == tuple(HARD)


@given(st.text(st.sampled_from("=+-@\t\r'a1., \n\"")))
def test_a_text_is_no_formula_as_a_cell_and_reads_back_as_it_was(text: str) -> None:
    assert records.parse_text(records.format_cell(text)) == text
    for cell in (records.format_cell(text), records.format_label(text)):
        assert not cell.startswith(records.FORMULA) or float(cell) == float(text)
    (line,) = csv.reader(StringIO(records.as_csv([[records.format_cell(text), "1"]]), newline=""))
    assert records.parse_texts(line) == [text, "1"]
