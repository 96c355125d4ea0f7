"""A sweep over the layers of a model: the patterns of every head in its table, and their picture."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from attn_exp import cli
from attn_exp.config.inputs import Model
from attn_exp.experiment import patterns
from attn_exp.problem import input_files, models
from attn_exp.problem.left_to_model import Pass
from tests.checkpoints import write_bert, write_tiny_model
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
    assert {name for name in rows[0] if name.startswith("head_2_")} == {f"head_2_{name}" for name in patterns.NAMES}
    assert (sweep / "plots" / "heads.svg").exists()
    page = (sweep / "report.html").read_text(encoding="utf-8")
    assert "Every head of every layer" in page
    assert "head_1_first" not in page


def test_layers_that_are_not_there_fail_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny_model(tmp_path / "tiny.bin")
    monkeypatch.chdir(tmp_path)
    words = ["model=llama", f"model.path={tmp_path}/tiny.bin", "model.tokens=[1,0]", "model.layer=1,2", "report=none"]
    assert cli.obey(["-m", *words, "sweep.engine=serial"]) == 1
    (sweep,) = (tmp_path / "outputs" / "sweeps").iterdir()
    rows = list(csv.DictReader((sweep / "results.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["status"] for row in rows] == ["ok", "failed"]
    assert rows[1]["message"] == "model.layer=2: the model has 2 layers, 0 to 1"


def test_other_sweeps_have_no_such_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = swept(tmp_path, monkeypatch, "head=1,2", "report=none")
    assert "head_1_first" not in (sweep / "results.csv").read_text(encoding="utf-8").splitlines()[0]


@pytest.mark.long
@pytest.mark.parametrize("most", [2**30, 0], ids=["by its bytes", "by sizes and times"])
@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_checkpoint_that_has_changed_is_computed_anew(
    file: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(input_files, "MOST_HASHED", most)
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "other"):
        Path(name).mkdir()
        write_bert(Path(name))
    for number, axes in enumerate((["model.path=mine", "model.layer=0,1"], ["model.path=other,mine", "model.layer=1"])):
        words = ["-m", "model=bert", "model.tokens=[1,2,1]", *axes, "sweep.engine=serial", "report=none"]
        before = entropies(*words, f"sweep.name=it{number}")
        assert entropies(*words, f"sweep.name=it{number}") == before
        change(Path("mine") / file)
        after = entropies(*words, f"sweep.name=it{number}")
        assert len(after) == 2
        assert after[1] != before[1]
        assert number == 0 or after[0] == before[0]
    capsys.readouterr()
    assert cli.obey(["rerun", "outputs/sweeps/it1", "1"]) == 0
    assert capsys.readouterr().err == ""
    change(Path("mine") / file)
    assert cli.obey(["rerun", "outputs/sweeps/it1", "1"]) == 0
    assert capsys.readouterr().err == "attn_exp: mine has changed since; a sweep keeps no arrays\n"


def entropies(*words: str) -> list[str]:
    """Run a sweep under the name that its last word says, and return the entropy of each point."""
    assert cli.obey(words) == 0
    table = Path(f"outputs/sweeps/{words[-1].partition('=')[2]}/results.csv").read_text(encoding="utf-8")
    return [row["entropy"] for row in csv.DictReader(table.splitlines())]


def change(file: Path) -> None:
    """Change a number of a file without a change of its size."""
    if file.suffix == ".json":
        settings = json.loads(file.read_text(encoding="utf-8"))
        settings["layer_norm_eps"] = 0.1 + 10 * settings.get("layer_norm_eps", 0.0)
        file.write_text(json.dumps(settings), encoding="utf-8")
        return
    data = bytearray(file.read_bytes())
    numbers = np.frombuffer(data, dtype=np.float32, offset=8 + int.from_bytes(data[:8], "little"))
    numbers[:] = numbers[::-1].copy()
    file.write_bytes(data)


@pytest.mark.long
@pytest.mark.parametrize(
    ("axes", "passes"),
    [
        (("model.layer=0,1",), 1),
        (("model.layer=1,0",), 2),  # a pass does not go back
        (("model.tokens=[1,2,1],[3,4,3,4]", "model.layer=0,1"), 2),
        (("model.layer=0,1", "model.tokens=[1,2,1],[3,4,3,4]"), 4),
    ],
)
def test_neighbours_that_differ_in_their_layer_share_one_pass(
    axes: tuple[str, ...], passes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bert(tmp_path)
    words = ["model=bert", f"model.path={tmp_path}", *["model.tokens=[1,2,1]"] * (len(axes) == 1)]
    begun: list[Model] = []
    begin = models.begin

    def counted(settings: Model, under_way: Pass) -> models.Begun:
        begun.append(settings)
        return begin(settings, under_way)

    monkeypatch.setattr(models, "begin", counted)
    folder = swept(tmp_path, monkeypatch, *words, *axes, "report=none", "sweep.chunk=4")
    rows = list(csv.DictReader((folder / "results.csv").read_text(encoding="utf-8").splitlines()))
    assert len(begun) == passes + 2  # before any worker: how many heads there are, and whether the first point fits
    for row in rows:
        point = [f"{key}={row[key]}" for key in ("model.tokens", "model.layer") if key in row]
        assert float(row["entropy"]) == comparison(*words, *point).rows[0].entropy
