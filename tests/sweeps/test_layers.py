"""A sweep over the layers of a model: the patterns of every head in its table, and their picture."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from attn_exp import cli
from attn_exp.experiment.metrics.targets import PATTERNS
from tests.checkpoints import write_bert
from tests.compose import comparison


def swept(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> Path:
    """Run a sweep and return its folder."""
    monkeypatch.chdir(folder)
    assert cli.obey(["-m", *words, "sweep.engine=serial"]) == 0
    (sweep,) = (folder / "outputs" / "sweeps").iterdir()
    return sweep


@pytest.mark.long
def test_the_table_holds_what_each_head_of_each_layer_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bert(tmp_path)
    words = ("model=bert", f"model.path={tmp_path}", "model.tokens=[1,2,1,2]")
    sweep = swept(tmp_path, monkeypatch, *words, "model.layer=0,1", "report=full")
    rows = list(csv.DictReader((sweep / "results.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["model.layer"] for row in rows] == ["0", "1"]
    for row in rows:
        weights = comparison(*words, f"model.layer={row['model.layer']}").traces["multi_head"].weights
        assert weights is not None
        for head in (1, 2):
            assert float(row[f"head_{head}_first"]) == pytest.approx(weights[head - 1, :, 0].mean())
            assert row[f"head_{head}_delimiter"] in ("", "nan")
    assert {name for name in rows[0] if name.startswith("head_2_")} == {f"head_2_{name}" for name in PATTERNS}
    assert (sweep / "plots" / "heads.svg").exists()
    page = (sweep / "report.html").read_text(encoding="utf-8")
    assert "Every head of every layer" in page
    assert "head_1_first" not in page
