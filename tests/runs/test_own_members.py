"""Members from outside the package run where the command line names their file; nothing on disk starts any."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import attn_exp
from attn_exp import cli, registry, rules
from attn_exp.errors import UserError
from attn_exp.own_code import fingerprint
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.rules import Rules, whole_grid
from attn_exp.runs import trust
from attn_exp.runs.provenance import register_names_only

SPY = """
from dataclasses import dataclass
from pathlib import Path
from attn_exp.rules.example import Example
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.scores.score import Score
from attn_exp.rules.normalizers.normalizer import Normalizer
from attn_exp.rules.normalizers.softmax import NORMALIZER as SOFTMAX
from attn_exp.rules.positions.position import Position
from attn_exp.experiment.metrics.metric import Metric
from attn_exp.forms.form import Form
from attn_exp.forms.matrix import FORM as MATRIX

Path(__file__).with_name("ran").touch()


@dataclass(frozen=True)
class Own(Mask):
    step: int = 2

    def allows(self, grid):
        return (grid.query - grid.key) % self.step == 0


@dataclass(frozen=True)
class Less(Score):
    def bias(self, grid):
        return -0.5 * abs(grid.query - grid.key)


@dataclass(frozen=True)
class Twice(Position):
    def turn(self, heads, positions):
        return heads * 2.0


def mine(logits, extra):
    return SOFTMAX.weigh(logits, extra)


NORMALIZER = Normalizer(mine)
FORM = Form(MATRIX.attend)
METRICS = (Metric("seven", lambda subject: 7.0, meaning="seven"),)
"""
FUNCTION = """
import numpy as np


def attention(q, k, v, mask=None):
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
"""
ALL = ["mask=mine", "score=mine", "position=mine", "normalizer=mine", "metrics=seven", "variant=[looped,mine]"]
WITH = ("--with", "mine.py")


@pytest.fixture(autouse=True)
def spy(here: Path) -> None:
    (here / "mine.py").write_text(SPY)


def newest(here: Path) -> Path:
    return (here / "outputs" / "latest").resolve()


def about(here: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((newest(here) / "run.json").read_text())
    return content


def test_a_run_records_file_hash_and_command(here: Path) -> None:
    cli.obey([*WITH, "mask=mine", "report=none"])
    (record,) = about(here)["with"]
    assert record["name"] == "mine.py"
    assert Path(record["file"]) == here / "mine.py"
    assert record["sha256"] == hashlib.sha256((here / "mine.py").read_bytes()).hexdigest()
    assert about(here)["command"] == "python -m attn_exp --with mine.py mask=mine report=none"
    loaded = attn_exp.load(newest(here))
    assert isinstance(loaded, attn_exp.Result)
    assert loaded.command == about(here)["command"]


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        {"with": [{"name": "mine.py", "file": "", "sha256": "", "members": ["attn_exp.rules.masks:causal", "a:b"]}]},
        {"with": [{"name": "mine.py", "file": "/etc/passwd", "sha256": "", "members": []}]},
        {"words": ["--with", "mine.py", "mask=mine"]},
    ],
)
def test_a_run_of_somebody_else_starts_nothing(here: Path, ran: Callable[[], bool], change: dict[str, Any]) -> None:
    cli.obey(["mask=causal", "report=none"])
    folder = newest(here)
    changed = trust.add_seal(about(here) | change, folder, list(about(here)["files"]))
    (folder / "run.json").write_text(json.dumps(changed))
    cli.obey(["report", str(folder)])
    with pytest.raises(UserError, match=r"add --own-code|is not a setting of a run"):
        cli.obey(["rerun", str(folder)])
    assert not ran()


def test_what_a_run_on_disk_calls_its_own_hides_no_rule_of_the_package() -> None:
    record = {"name": "x.py", "file": "", "sha256": "", "members": ["attn_exp.rules.masks:causal", "os:system", "mine"]}
    with register_names_only({"with": [record | {"members": [*record["members"], "attn_exp.rules.masks:mine"]}]}):
        assert type(rules.make("mask", "causal", {})) is Causal
        assert list(registry.OUTSIDE) == [("attn_exp.rules.masks", "mine")]
        with pytest.raises(UserError, match=r"mine is code from outside the package"):
            rules.make("mask", "mine", {"any": 1}).allows(whole_grid(Rules(), 1, 2, 2))
    assert not registry.OUTSIDE


def test_a_folder_of_yaml_names_no_file(here: Path, ran: Callable[[], bool]) -> None:
    (here / "conf/mask").mkdir(parents=True)
    (here / "conf/mask/mine.yaml").write_text("mine:\n  step: 2\n")
    with pytest.raises(UserError, match=r"unknown mask 'mask\.mine'"):
        cli.obey(["--config-dir", "conf", "mask=mine", "report=none"])
    assert not ran()
    assert cli.obey([*WITH, "--config-dir", "conf", "mask=mine", "report=none"]) == 0
    assert about(here)["command"].startswith("python -m attn_exp --with mine.py --config-dir conf ")


@pytest.mark.long
@pytest.mark.parametrize("engine", ["dask"])
def test_workers_of_other_engines_know_files_and_functions(engine: str, here: Path) -> None:
    (here / "fn.py").write_text(FUNCTION)
    own = ["variant=[looped,own]", "variant.own.form=fn.py:attention"]
    words = [*WITH, "-m", "mask=mine,causal", "seed=0,1", *own, "report=none", "head=1", "sweep.workers=2"]
    tables = []
    for name in ("serial", engine):
        assert cli.obey([*words, f"sweep.engine={name}", f"sweep.name={name}"]) == 0
        tables.append((here / f"outputs/sweeps/{name}/results.csv").read_text())
    assert tables[0] == tables[1]
    assert tables[0].count(",ok,") == 8


def test_what_was_registered_in_python_is_recorded_where_it_is_used(here: Path) -> None:
    with registry.undo_registrations():

        @attn_exp.register
        @dataclass(frozen=True)
        class Nearby(Mask):
            def allows(self, grid: Any) -> Any:
                return grid.query >= grid.key

        attn_exp.run("mask=causal", report="none").save()
        assert "with" not in about(here)
        attn_exp.run("mask=nearby", report="none").save()
        assert about(here)["with"][0]["members"] == ["attn_exp.rules.masks:nearby"]
    cli.obey(["report", str(newest(here))])
    with pytest.raises(UserError, match="needs nearby, registered in Python"):
        cli.obey(["rerun", str(newest(here)), "--own-code"])


def test_the_hash_counts_what_a_file_imports_beside_it(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("import json\nimport helper\n")
    (tmp_path / "other.py").write_text("")
    alone = fingerprint(mine)
    assert alone == hashlib.sha256(mine.read_bytes()).hexdigest()
    (tmp_path / "helper.py").write_text("def f():\n    from deep.er import x\n    return x\n")
    helped = fingerprint(mine)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/er.py").write_text("x = 1\n")
    deeper = fingerprint(mine)
    (tmp_path / "deep/er.py").write_text("x = 2\n")
    hashes = [alone, helped, deeper, fingerprint(mine)]
    assert len(set(hashes)) == 4
    (tmp_path / "other.py").write_text("nobody imports it\n")
    assert fingerprint(mine) == hashes[-1]
    mine.write_text("def (\n")
    assert fingerprint(mine) == hashlib.sha256(mine.read_bytes()).hexdigest()
    assert fingerprint(tmp_path / "none.py") == ""
