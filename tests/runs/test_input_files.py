"""Runs of files: what they read is recorded, and they are repeated from their own arrays where files have changed."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_exp import cli

STREAM = np.random.default_rng(0)
X = STREAM.standard_normal((3, 4))
MATRICES: dict[str, Any] = {f"W_{letter}": STREAM.standard_normal((4, 4)) for letter in "qkvo"}
BIASES: dict[str, Any] = {f"b_{letter}": STREAM.standard_normal(4) for letter in "qkvo"}
FILES = ("embeddings=file", "embeddings.file=words.csv", "projections=file", "projections.file=weights.npz")
RUNS: list[tuple[str, ...]] = [
    FILES,
    (*FILES, "bias=true", "projections.file=biased.npz"),
    (*FILES, "projections.transposed=true", "embeddings.columns=true", "embeddings.file=turned.npy"),
    (*FILES, "embeddings.tokens=tokens.txt"),
    (*FILES, "past=1", "mask=causal"),
    ("embeddings=she_likes_coffee", "embeddings.memory=words.csv", "head=2"),
    ("embeddings=file", "embeddings.file=words.csv", "embeddings.memory.file=turned.npy"),
    ("embeddings=file", "embeddings.file=late.npz", "projections=none", "past=1"),
    ("embeddings=file", "embeddings.file=late.npz", "projections=none"),
    (*FILES, "embeddings.memory=memory.csv"),
    ("embeddings=random", "embeddings.d_model=4", "embeddings.memory.file=memory.csv", "generator=torch"),
    ("embeddings=inline", "embeddings.vectors=turned.npy", "embeddings.columns=true", "+projections.given.W_q=q.npy"),
]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines = [",".join([name, *map(repr, row)]) for name, row in zip(("she", "likes", "tea"), X.tolist(), strict=True)]
    Path("words.csv").write_text("\n".join(lines), encoding="utf-8")
    Path("tokens.txt").write_text("a\nb\nc\n", encoding="utf-8")
    Path("memory.csv").write_text("elle,1,2,0.5,-1\naime,0,1,0,1\n", encoding="utf-8")
    np.savez("weights.npz", **MATRICES)
    np.savez("biased.npz", **MATRICES, **BIASES)
    np.savez("late.npz", q=X, k=2 * X, v=3 * X)
    np.save("turned.npy", X.T)
    np.save("q.npy", MATRICES["W_q"])
    return tmp_path


def newest() -> Path:
    return max(Path("outputs/runs").iterdir(), key=lambda folder: folder.stat().st_mtime_ns)


def run(*words: str) -> Path:
    assert cli.obey(["report=none", "variant=[matrix,multi_head]", *words]) == cli.DONE
    return newest()


def arrays(folder: Path) -> dict[str, Any]:
    with np.load(folder / "results.npz") as stored:
        return {name: stored[name] for name in stored if not name.startswith("array:")}


def same(one: Path, other: Path) -> None:
    first, second = arrays(one), arrays(other)
    assert set(first) == set(second)
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


@pytest.mark.parametrize(("words", "change"), list(itertools.product(RUNS, ["nothing", "gone", "other"])))
def test_a_run_of_files_is_repeated_to_the_bit(
    words: tuple[str, ...], change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = run(*words)
    for file in Path().glob("*.*"):
        if change == "gone":
            file.unlink()
        elif change == "other":
            file.write_bytes(b"something else")
    assert cli.obey(["rerun", str(before)]) == cli.DONE
    after, told = newest(), capsys.readouterr().err
    assert after != before
    same(before, after)
    assert told.count("the arrays stored in") == (0 if change == "nothing" else told.count("\n"))
    assert (told == "") is (change == "nothing")
    assert ("no longer exists" in told, "has changed" in told) == (change == "gone", change == "other")
    described = json.loads((after / "run.json").read_text(encoding="utf-8"))
    if change == "nothing":
        assert described["config"] == json.loads((before / "run.json").read_text(encoding="utf-8"))["config"]
    else:
        assert not any("file=" in word for word in described["words"])
        assert any("=array:" in word for word in described["words"])
        assert cli.obey(["rerun", str(after)]) == cli.DONE  # and once more, from what the second has kept
        same(before, newest())


def test_a_run_on_disk_makes_nobody_read_a_file_that_it_did_not_record(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = run(*FILES)
    about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    about["config"]["embeddings"]["file"] = str(tmp_path / "turned.npy")
    (folder / "run.json").write_text(json.dumps(about), encoding="utf-8")
    assert cli.obey(["rerun", str(folder)]) == cli.DONE
    assert "turned.npy was not recorded; the arrays stored in" in capsys.readouterr().err
    same(folder, newest())
