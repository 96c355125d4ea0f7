"""`attn-exp status`, `collect`, `rerun`, `runs`: from the files alone, wherever they lie."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.sweeps.command import HELD, quickly, results, run, start, the_sweep, wait_until

SLOW = ("-m", "embeddings=random", "embeddings.tokens=20", "embeddings.d_model=8", "seed=range(160)", "report=none")


@pytest.mark.long
def test_status_while_it_runs_and_after(tmp_path: Path) -> None:
    with start(tmp_path, *SLOW, patch=HELD) as driver:
        wait_until(lambda: bool(list(tmp_path.glob("outputs/sweeps/*/parts/*.csv"))))
        out, _ = quickly(tmp_path, "status", str(the_sweep(tmp_path)))
        driver.kill()
    assert out.endswith("\nrunning\n")
    assert " of 160 points, 0 failed" in out
    out, _ = quickly(tmp_path, "status", str(the_sweep(tmp_path)))
    assert "stopped before it finished; run the same command again to continue" in out
    run(tmp_path, *SLOW)
    out, _ = quickly(tmp_path, "status", str(the_sweep(tmp_path)))
    assert "160 of 160 points, 0 failed" in out
    assert out.endswith("complete\n")


def test_collect_rebuilds_from_the_parts_alone_even_elsewhere(tmp_path: Path) -> None:
    said, _ = quickly(tmp_path, "-m", "head=1,2,3", "seed=0,1", "report=tables", code=1)
    before = {name: (the_sweep(tmp_path) / name).read_bytes() for name in ("results.csv", "report.md")}
    moved = tmp_path / "moved"
    shutil.move(the_sweep(tmp_path), moved)
    for name in before:
        (moved / name).unlink()
    out, _ = quickly(tmp_path, "collect", str(moved))
    assert {name: (moved / name).read_bytes() for name in before} == before
    assert out.split("\n")[:-2] == said.split("\n")[:-2]


def test_rerun_a_point_and_a_run(tmp_path: Path) -> None:
    quickly(tmp_path, "-m", "head=1,2", "seed=3,5", "variant=[matrix,multi_head]", "report=none", "sweep.name=mine")
    row = results(tmp_path)[5]
    assert (row["head"], row["seed"], row["variant"]) == ("2", "3", "multi_head")
    quickly(tmp_path, "rerun", "outputs/sweeps/mine", "2")
    told = json.loads((tmp_path / "outputs" / "latest" / "run.json").read_text())
    assert (told["config"]["head"], told["config"]["seed"]) == (2, 3)
    assert f",{row['entropy']}," in (tmp_path / "outputs" / "latest" / "comparison.csv").read_text()
    before = (tmp_path / "outputs" / "latest").resolve()
    quickly(tmp_path, "rerun", "outputs/latest")
    after = (tmp_path / "outputs" / "latest").resolve()
    assert before != after
    assert (before / "comparison.csv").read_bytes() == (after / "comparison.csv").read_bytes()


def test_rerun_asks_for_a_point_that_there_is(tmp_path: Path) -> None:
    quickly(tmp_path, "-m", "seed=0,1", "report=none", "sweep.name=mine", "sweep.engine=serial")
    for words in (("rerun", "outputs/sweeps/mine"), ("rerun", "outputs/sweeps/mine", "2")):
        _, err = quickly(tmp_path, *words, code=2)
        assert err == "attn_exp: error: outputs/sweeps/mine is a sweep; give the number of a point, 0 to 1\n"


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    for words in (
        ("status", "nowhere"),
        ("collect", "nowhere"),
        ("runs", "nowhere"),
        ("rerun", "nowhere", "1"),
        ("status",),
    ):
        _, err = quickly(tmp_path, *words, code=2)
        assert err.startswith("attn_exp: error: ")
        assert err.count("\n") == 1
