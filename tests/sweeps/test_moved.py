"""A sweep that was stopped goes on elsewhere: in a copy of its folder, with another number of workers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from attn_exp.sweeps.sweep import sweep

WORDS = ["seed=range(0,40)", "head=1,2", "variant=[matrix,multi_head]", "report=none", "sweep.name=one"]


def computed(home: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> Path:
    home.mkdir(exist_ok=True)
    monkeypatch.chdir(home)
    assert sweep([*WORDS, f"sweep.workers={workers}"], []).code == 0
    return home / "outputs/sweeps/one"


def test_a_copied_folder_is_finished_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = computed(tmp_path / "here", monkeypatch, 1)
    stopped = tmp_path / "there"
    shutil.copytree(tmp_path / "here", stopped)
    parts = sorted((stopped / "outputs/sweeps/one/parts").iterdir())
    for part in parts[::2]:  # what had not been computed when it was stopped
        part.unlink()
    (stopped / "outputs/sweeps/one/results.csv").unlink()
    capsys.readouterr()
    moved = computed(stopped, monkeypatch, 2)
    assert (moved / "results.csv").read_bytes() == (whole / "results.csv").read_bytes()
    assert f", {80 - 5 * len(parts[::2])} cached" in capsys.readouterr().err
