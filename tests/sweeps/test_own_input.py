"""Sweeps over sentences and files: each point is the run of its words, and a file that changes is computed anew."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_exp import cli
from tests.compose import comparison

START = ("-m", "sweep.engine=serial", "report=none", "variant=matrix", "sweep.name=it")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "other"):
        write(name, len(name))
    return tmp_path


def write(name: str, seed: int) -> None:
    stream = np.random.default_rng(seed)
    matrices: dict[str, Any] = {f"W_{letter}": stream.standard_normal((4, 4)) for letter in "qkv"}
    np.savez(f"{name}.npz", **matrices)


def rows(*words: str) -> list[dict[str, str]]:
    assert cli.obey([*START, *words]) == cli.DONE
    with Path("outputs/sweeps/it/results.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def entropy(*words: str) -> float:
    return comparison("variant=matrix", *words).rows[0].entropy


CHANGING = [("projections.file=one.npz,other.npz", "seed=0"), ("projections.file=one.npz", "seed=0,1")]


@pytest.mark.long
@pytest.mark.parametrize("words", CHANGING)
def test_a_file_that_has_changed_is_read_anew(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    before = rows("projections=file", *words)
    assert rows("projections=file", *words) == before
    write("one", 99)
    assert rows("projections=file", *words)[0]["entropy"] != before[0]["entropy"]
    capsys.readouterr()
    assert cli.obey(["rerun", "outputs/sweeps/it", "1"]) == cli.DONE
    assert capsys.readouterr().err == ""
    write("one", 3)
    assert cli.obey(["rerun", "outputs/sweeps/it", "0"]) == cli.DONE
    assert capsys.readouterr().err == "attn_exp: one.npz has changed; a sweep does not store its arrays\n"
