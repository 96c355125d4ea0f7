"""A sweep as a user runs it: its table, its resuming, its failures, its mistakes."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attn_exp.experiment.compare import compare
from attn_exp.machine import DRAFT
from attn_exp.sweeps import engines
from attn_exp.sweeps.engines import engine
from tests import ROOT
from tests.compose import config
from tests.sweeps.command import HELD, alive, children, manifest, quickly, results, run, start, the_sweep, wait_until

Quick = Callable[..., tuple[str, str]]

SMALL = ("-m", "head=1,2", "seed=0,1,2", "report=none")
SLOW = ("-m", "embeddings=random", "embeddings.tokens=20", "embeddings.d_model=8", "seed=range(160)", "report=none")


@pytest.fixture
def quick(tmp_path: Path) -> Quick:
    """A command in this process and an empty folder, on the serial engine."""
    return functools.partial(quickly, tmp_path)


def table(folder: Path) -> bytes:
    return (the_sweep(folder) / "results.csv").read_bytes()


@pytest.mark.long
def test_each_point_has_the_rows_of_its_own_run(tmp_path: Path, quick: Quick) -> None:
    quick(*SMALL)
    found = results(tmp_path)
    assert [(line["point"], line["head"], line["seed"], line["variant"]) for line in found] == [
        (str(3 * h + seed), str(head), str(seed), variant)
        for h, head in enumerate((1, 2))
        for seed in range(3)
        for variant in ("looped", "matrix", "scaled", "multi_head")
    ]
    rows = compare(config("head=2", "seed=1")).rows
    mine = [line for line in found if (line["head"], line["seed"]) == ("2", "1")]
    assert [float(line["entropy"]) for line in mine] == [row.entropy for row in rows]
    assert [float(line["error"]) for line in mine] == [row.error for row in rows]
    assert [line["variant_head"] for line in mine] == [str(row.head) for row in rows]


@pytest.mark.long
def test_engines_workers_and_chunks_agree_to_the_last_byte(tmp_path: Path) -> None:
    words = ("-m", "head=1,2,3", "seed=range(5)", "bias=true,false", "report=none")
    tables = set()
    installed = [name for name in engines.NAMES if not engine.find(name).library]
    assert {"process", "serial"} <= set(installed)
    ways = [(f"sweep.engine={name}",) for name in installed]
    for number, more in enumerate([*ways, ("sweep.workers=3", "sweep.chunk=1"), ("sweep.workers=2", "sweep.chunk=7")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        run(folder, *words, *more, code=1)
        tables.add(table(folder))
    assert len(tables) == 1


def test_the_same_command_does_nothing_twice(tmp_path: Path, quick: Quick) -> None:
    first, _ = quick(*SMALL)
    before = {path: path.stat().st_mtime_ns for path in the_sweep(tmp_path).glob("parts/*")}
    again, told = quick(*SMALL)
    assert again == first
    assert "6 cached" in told
    assert {path: path.stat().st_mtime_ns for path in the_sweep(tmp_path).glob("parts/*")} == before


def test_an_edited_yaml_never_returns_old_rows(tmp_path: Path, quick: Quick) -> None:
    mine = tmp_path / "mine" / "embeddings" / "mine.yaml"
    mine.parent.mkdir(parents=True)
    words = ("--config-dir", "mine", "-m", "embeddings=mine", "seed=0,1,2", "report=none", "variant=[matrix]")
    mine.write_text("tokens: [a, b]\nvectors: [[1, 0], [0, 1]]\n")
    quick(*words)
    first = table(tmp_path)
    mine.write_text("tokens: [a, b]\nvectors: [[1, 0], [0, 2]]\n")
    _, told = quick(*words)
    second = table(tmp_path)
    assert "0 cached" in told
    assert first != second
    mine.write_text("tokens: [a, b]\nvectors: [[1, 0], [0, 1]]\n")
    _, told = quick(*words)
    assert "3 cached" in told
    assert table(tmp_path) == first


@pytest.mark.long
def test_a_new_version_never_returns_old_rows(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "attn_exp", tmp_path / "attn_exp")
    shutil.copytree(ROOT / "conf", tmp_path / "attn_exp" / "conf")
    here = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    run(tmp_path, *SMALL, patch=here)
    _, told = run(tmp_path, *SMALL, patch=here)
    assert "6 cached" in told
    source = tmp_path / "attn_exp" / "experiment" / "row.py"
    source.write_text(source.read_text() + "\n")
    _, told = run(tmp_path, *SMALL, patch=here)
    assert "0 cached" in told


def test_a_failed_point_is_a_row(tmp_path: Path, quick: Quick) -> None:
    out, _ = quick("-m", "head=2,3", "seed=0,1", "report=none", code=1)
    failed = [line for line in results(tmp_path) if line["status"] == "failed"]
    assert [(line["head"], line["seed"], line["variant"]) for line in failed] == [("3", "0", ""), ("3", "1", "")]
    assert {line["message"] for line in failed} == {"head=3 does not divide d_model=4; choose one of 1, 2, 4"}
    assert "2 x failed: head=3 does not divide d_model=4" in out
    assert "python -m attn_exp report=none head=3 seed=0" in out


@pytest.mark.long
def test_fail_fast_stops_and_the_same_command_without_it_goes_on(tmp_path: Path, quick: Quick) -> None:
    words = ("-m", "seed=range(100)", "head=3,2", "report=none", "sweep.chunk=10")
    quick(*words, "sweep.fail_fast=true", code=1)
    assert manifest(tmp_path)["status"] == "partial"
    assert len(results(tmp_path)) < 100
    quick(*words, code=1)
    assert manifest(tmp_path)["status"] == "complete"
    assert sum(line["status"] == "failed" for line in results(tmp_path)) == 100
    assert len(results(tmp_path)) == 500


CRASH = """
import os, signal
from attn_exp.sweeps import task
whole = task.tabulate
def tabulate(config, **more):
    if config.seed == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    if config.seed == 12 and not os.path.exists("once"):
        open("once", "w").close()
        os._exit(3)
    return whole(config, **more)
task.tabulate = tabulate
task.compute_stacks = lambda *given: {}
"""


@pytest.mark.long
def test_a_point_that_kills_its_worker_twice_is_found_and_recorded(tmp_path: Path) -> None:
    words = ("-m", "seed=range(20)", "report=none", "sweep.chunk=10", "variant=[matrix]")
    run(tmp_path, *words, patch=CRASH, code=1)
    found = results(tmp_path)
    assert [int(line["point"]) for line in found] == list(range(20))
    crashed = [line for line in found if line["status"] == "crashed"]
    assert [line["seed"] for line in crashed] == ["5"]
    assert crashed[0]["message"] == "its worker was killed by SIGKILL, twice"
    _, told = run(tmp_path, *words)
    assert "19 cached" in told
    assert {line["status"] for line in results(tmp_path)} == {"ok"}


@pytest.mark.long
def test_a_dry_run_tells_and_writes_nothing(tmp_path: Path, quick: Quick) -> None:
    out, _ = quick(*SMALL, "sweep.dry_run=true")
    assert "head: 1, 2" in out
    assert "6 points in 6 chunks, 0 already done" in out
    assert "for the rest" in out
    assert os.listdir(tmp_path) == []
    quick(*SMALL)
    out, _ = quick(*SMALL, "sweep.dry_run=true")
    assert "6 already done" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("head=1,two", "head=two: expected a whole number of at least 1"),
        ("head=interval(1,2)", "an interval has no list of values"),
        ("heads=1,2", "unknown setting 'heads'; did you mean head?"),
        ("embeddings=she_likes_coffee,the_cat_st", "unknown embeddings 'the_cat_st'; did you mean the_cat_sat?"),
        ("head=1,2 sweep.skip=heads>2", "unknown name in sweep.skip 'heads'; did you mean head?"),
        ("head=1,2 sweep.skip=__import__('os')", "is not allowed in an expression"),
        ("head=1,2 sweep.engine=slurm", "unknown sweep.engine 'slurm'"),
        ("head=1,2 output_dir=a_file/inside", "cannot be written to"),
        ("head=1,2 metrics=[ginny]", "unknown metrics 'ginny'; did you mean gini?"),
        ("head=1,2 check=[invariants]", "a sweep runs no check"),
        ("head=1,2 dtype=[float16,float32]", "a point of a sweep has one dtype; write dtype=float16,float32"),
        ("dtype=float32,float8", "unknown dtype 'float8'"),
        ("dtype=[float32],[float64]", "unknown dtype '[float32]'; did you mean float32? choose one of float16,"),
        ("seed=0,1,0,0", "seed=0 is given 3 times; give each value once, since repeated rows would count as data"),
        ("mask=none,causal,none", "mask=none is given 2 times"),
        ("head=1,2,1 seed=0,1,0 sweep.zip=[head,seed]", "head=1 seed=0 is given 2 times"),
        ("head=1,2 sweep.worker=2", "unknown setting 'sweep.worker'; did you mean sweep.workers?"),
    ],
)
def test_one_line_and_exit_code_2(words: str, message: str, tmp_path: Path, quick: Quick) -> None:
    (tmp_path / "a_file").write_text("")
    out, err = quick("-m", *words.split(" "), code=2)
    assert out == ""
    assert err.startswith("attn_exp: error: ")
    assert err.count("\n") == 1
    assert message in err
    assert os.listdir(tmp_path) == ["a_file"]


@pytest.mark.long
def test_two_drivers_on_one_folder(tmp_path: Path) -> None:
    with start(tmp_path, *SLOW, patch=HELD) as first:
        wait_until(lambda: bool(list(tmp_path.glob("outputs/sweeps/*/parts/*.csv"))))
        _, err = run(tmp_path, *SLOW, code=2)
        (tmp_path / "go").touch()
        first.communicate(timeout=120)
    assert "is running this sweep" in err
    assert first.returncode == 0
    assert len(results(tmp_path)) == 640


@pytest.mark.long
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_a_partial_table_that_says_so(sign: signal.Signals, tmp_path: Path) -> None:
    words = (*SLOW[:-1], "report=tables")
    driver = start(tmp_path, *words, patch=HELD)
    wait_until(lambda: len(list(tmp_path.glob("outputs/sweeps/*/parts/*.csv"))) > 1)
    workers = children(driver.pid)
    driver.send_signal(sign)
    out, err = driver.communicate(timeout=120)
    assert driver.returncode == 128 + sign
    assert "Traceback" not in err
    assert "Partial (interrupted): " in out
    assert "Run the same command again to continue" in out
    assert "Partial (interrupted)" in (the_sweep(tmp_path) / "report.md").read_text()
    assert 0 < len(results(tmp_path)) < 640
    assert not any(map(alive, workers))
    run(tmp_path, *words)
    assert len(results(tmp_path)) == 640


@pytest.mark.long
def test_a_full_disk_is_told_and_the_same_command_goes_on(tmp_path: Path) -> None:
    words = ("-m", "seed=range(64)", "report=none", "sweep.chunk=32")
    _, err = run(tmp_path, *words, limit="-f 16", code=2)
    assert "the sweep stopped; run the same command again to continue (File too large)" in err
    assert "Traceback" not in err
    assert not [path for path in the_sweep(tmp_path).rglob("*") if DRAFT.fullmatch(path.name)]
    run(tmp_path, *words)
    assert len(results(tmp_path)) == 256


def test_more_metrics_are_more_columns(tmp_path: Path, quick: Quick) -> None:
    words = ("metrics=[gini,entropy,hoyer,gini]", "mask=causal")
    quick("-m", "head=1,2", "seed=0", *words, "report=tables")
    (check,) = compare(config("head=2", *words)).checks
    expected = {(each.variant, each.metric): each.value for each in check.records}
    for line in results(tmp_path)[4:]:
        for name in ("gini", "entropy", "hoyer"):
            assert float(line[name]) == expected[line["variant"], name]
    assert "gini" in (the_sweep(tmp_path) / "report.md").read_text()


def test_parquet_without_pyarrow_is_refused_before_anything_is_computed(
    tmp_path: Path, quick: Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "pyarrow.csv", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    _, told = quick("-m", "head=1,2", "sweep.format=parquet", code=2)
    assert "sweep.format=parquet needs pyarrow; pip install 'attn-exp[parquet]'" in told
    assert not (tmp_path / "outputs").exists()


@pytest.mark.long
def test_parquet_is_a_data_set_for_duckdb(tmp_path: Path, quick: Quick) -> None:
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    words = ("-m", "head=1,2,3", "scale=true,0.5", "seed=range(4)", "report=none")
    quick(*words, "sweep.name=csv", code=1)
    quick(*words, "sweep.name=parquet", "sweep.format=parquet", code=1)
    _, told = quick(*words, "sweep.name=parquet", "sweep.format=parquet", code=1)
    assert "16 cached" in told
    columns = "head, variant, min(entropy), max(entropy), max(error), count(*)"
    query = f"select {columns} from {{}} where status = 'ok' group by all order by all"
    sweeps = tmp_path / "outputs" / "sweeps"
    with duckdb.connect() as connection:
        left, right = (
            connection.execute(query.format(f"'{files}'")).fetchall()
            for files in (sweeps / "csv" / "results.csv", sweeps / "parquet" / "results.parquet")
        )
    assert left == right
    assert len(left) == 8
    assert json.loads((sweeps / "parquet" / "manifest.json").read_text())["failed"] == 8


@pytest.mark.long
@pytest.mark.parametrize("strict", ["published.strict=true", "strict=true"])
def test_printed_figures_that_must_agree_decide_the_exit_code(strict: str, tmp_path: Path, quick: Quick) -> None:
    """The document holds with its own numbers alone; its folder and its rows are the same, strict or not."""
    words = ("-m", "experiment=the_cat_sat", "embeddings.vectors.0.0=1,9", "report=none")
    told, _ = quick(*words)
    assert "1 point disagrees with a published result" in told
    assert "0 cached" in quick(*words, strict, "sweep.name=apart", code=1)[1]
    assert "2 cached" in quick(*words, strict, code=1)[1]
    assert "2 cached" in quick(*words)[1]
    quick("-m", "experiment=the_cat_sat", "embeddings.vectors.0.0=1", "report=none", strict, "sweep.name=one")
