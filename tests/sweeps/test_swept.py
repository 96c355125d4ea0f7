"""A sweep from Python: the same folder as the command line's, and a frame that plain pandas would read alike."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

import attn_exp
from attn_exp.errors import UserError
from attn_exp.runs.records import FORMULA
from attn_exp.sweeps.swept import Swept

WORDS = ("head=1,2", "seed=range(0,6)")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    folder = tmp_path_factory.mktemp("swept")
    return attn_exp.sweep(*WORDS, "sweep.engine=serial", variant=["matrix", "multi_head"], output_dir=str(folder))


@pytest.mark.long
def test_the_frame_is_that_which_pandas_reads_with_types_and_units(swept: Swept) -> None:
    plain = pd.read_csv(swept.folder / "results.csv", converters={"entropy": float})  # to the last digit
    table = swept.table
    assert list(table) == list(plain)
    assert (table["entropy"] == plain["entropy"]).all()
    assert {str(table[name].dtype) for name in ("point", "seed", "head", "flops")} == {"Int64"}
    assert (str(table["entropy"].dtype), str(table["variant_bias"].dtype)) == ("float64", "boolean")
    assert table.attrs["units"]["entropy"] == "nats"


def test_effects_are_differences_that_pandas_computes_from_the_same_table(swept: Swept) -> None:
    """`matrix` has one head whatever is asked for, so the effect is that on `multi_head`."""
    rows = swept.table[swept.table["variant"] == "multi_head"].pivot(index="seed", columns="head", values="entropy")
    found = swept.effects.query("setting == 'head' and metric == 'entropy'")
    assert float(found["mean"].iloc[0]) == pytest.approx(float((rows[2] - rows[1]).mean()), rel=1e-12)
    assert int(found["seeds"].iloc[0]) == 6


def test_the_files_of_effects_and_shares_have_every_digit(swept: Swept) -> None:
    for name, frame in (("effects", swept.effects), ("shares", swept.shares)):
        with (swept.folder / f"{name}.csv").open() as file:
            lines = list(csv.reader(file))
        assert lines[0] == list(frame)
        for line, row in zip(lines[1:], frame.itertuples(index=False), strict=True):
            assert line == ["" if pd.isna(value) else str(value) for value in row]


def test_load_opens_sweeps_and_runs(swept: Swept, tmp_path: Path) -> None:
    again = attn_exp.load(swept.folder)
    assert isinstance(again, Swept)
    assert again.sentences == swept.sentences != ()
    result = attn_exp.run("report=none", head=2)
    loaded = attn_exp.load(result.save(tmp_path))
    assert isinstance(loaded, attn_exp.Result)
    assert loaded.table["error"].equals(result.table["error"])
    with pytest.raises(UserError, match="not a finished run"):
        attn_exp.load(tmp_path / "nowhere")


def test_plots_and_tables_for_papers_come_from_python_too(swept: Swept) -> None:
    assert swept.figure("effects").figure.axes
    assert r"\toprule" in swept.latex("effects")
    with pytest.raises(UserError, match="choose one of effects"):
        swept.figure("nothing")
    with pytest.raises(UserError, match="choose one of effects, shares"):
        swept.latex("nothing")


def test_a_notebook_sees_the_answers_and_the_means(swept: Swept) -> None:
    page = swept._repr_html_()
    assert swept.sentences[0] in page
    assert "multi_head" in page
    assert str(swept).endswith("s.")


def test_texts_that_a_spreadsheet_could_run_come_back_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    titles = ["=1+1", "-", "@a", "'b", "-2"]
    words = ["title=" + ",".join(f'"{title}"' for title in titles), "seed=0,1", "variant=[matrix]", "report=tables"]
    swept = attn_exp.sweep(*words, "sweep.engine=serial")
    assert list(swept.table["title"][::2]) == titles
    assert set(titles) <= {level for key in swept.summary.cells for level in key}
    for path in swept.folder.glob("*.csv"):
        with path.open(newline="") as file:
            cells = [cell for line in csv.reader(file) for cell in line if cell.startswith(FORMULA)]
        assert all(float(cell) <= 0 for cell in cells), path
