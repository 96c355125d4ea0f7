"""Runs that an earlier version wrote open today: one of each kind, as that version left them on the disk."""

from __future__ import annotations

import csv
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.errors import UserError
from attn_exp.experiment.row import Row
from attn_exp.runs import records
from attn_exp.runs.result import Result
from tests.runs.test_classroom import home, result
from tests.sweeps.command import quickly

__all__ = ["home"]

EARLIER = Path(__file__).with_name("earlier")
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("same_as", {"looped": "A", "matrix": "A", "scaled": "A", "multi_head": "B"}),
    "document": ("same_as", {"looped": "A", "matrix": "A", "scaled": "A", "unscaled": "B"}),
    "masks": ("mask", dict.fromkeys(("looped", "decode", "linear"), "causal and window(left=2, right=0)")),
    "model": ("head", {"multi_head": 2}),
    "own_form": ("form", {"matrix": "matrix", "mine": "mine.py:attention"}),
}
"""The runs, a column of each, and what it held when they were written."""


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """Return a copy of all that the earlier version left."""
    return Path(shutil.copytree(EARLIER, tmp_path / "earlier"))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_opens_and_its_report_is_drawn_again(name: str, earlier: Path) -> None:
    result = attn_exp.load(earlier / name)
    assert isinstance(result, Result)
    column, values = RUNS[name]
    assert values.items() <= result.table[column].to_dict().items()
    with np.load(earlier / name / "results.npz") as stored:
        variant = next(iter(values))
        assert np.array_equal(result.array(variant, "weights"), stored[f"{variant}/weights"])
    last = [row for row in result.comparison.rows if row.same_as][-1]
    steps = result.steps(last.variant)
    assert len(result.comparison.rows) == 1 or steps["total"].iloc[-1] == pytest.approx(last.shift, abs=1e-9)
    with pytest.raises(UserError, match="unknown row 'nobody'; choose one of "):
        result.steps(against="nobody")
    assert set(result.steps(against=last.variant)["against"]) <= {last.variant}
    out, _ = quickly(earlier, "report", name)
    assert out == f"{name}/report.html\n"
    page = (earlier / name / "report.html").read_text(encoding="utf-8")
    assert all(variant in page for variant in values)


def test_a_sweep_opens_from_its_parts_and_is_collected_again(earlier: Path) -> None:
    swept = attn_exp.load(earlier / "sweep")
    assert swept.table.shape[0] == 12
    assert set(swept.table["status"]) == {"ok"}
    before = (earlier / "sweep" / "results.csv").read_bytes()
    (earlier / "sweep" / "results.csv").unlink()
    assert "6 points, 0 failed" in quickly(earlier, "collect", "sweep")[0]
    assert (earlier / "sweep" / "results.csv").read_bytes() == before


@pytest.mark.usefixtures("home")
def test_a_key_grades_what_was_filled_in(earlier: Path) -> None:
    (line,) = result(str(earlier / "sheet" / "answers.csv"), str(earlier / "sheet" / "key"))
    assert (line["points"], line["of"], line["first wrong"]) == ("66", "75", "logits")
    assert line["mistake"] == "no_scale"


LINES = list(csv.reader(StringIO((EARLIER / "default" / "comparison.csv").read_text(encoding="utf-8"))))


def without(*names: str) -> str:
    """Return the table of the default run without some of its columns."""
    kept = [place for place, name in enumerate(LINES[0]) if name not in names]
    return records.as_csv([[line[place] for place in kept] for line in LINES])


def test_a_column_that_a_file_lacks_has_its_default() -> None:
    rows = records.parsed(Row, without("computed_in", "kv_head", "sameness"))
    assert {(row.computed_in, row.kv_head, row.sameness) for row in rows} == {("float64", 0, "")}
    assert [row.variant for row in rows] == list(RUNS["default"][1])


@pytest.mark.parametrize(
    "text",
    [
        without("entropy"),  # it never had a default: no version wrote a file without it
        without().replace("head,", "hed,", 1),
        without().replace("variant,form", "variant,variant", 1),
        without().replace("\n", ",more\n", 1),
        without() + "looped\n",
        "",
    ],
    ids=["needed", "unknown", "twice", "one too many", "a short line", "empty"],
)
def test_a_table_of_other_columns_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected the columns|argument"):
        records.parsed(Row, text)
