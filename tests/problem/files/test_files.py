"""Arrays in every format of files: what other programs write is what is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from attn_exp.config.inputs import STREAMS
from attn_exp.problem.drawing import seed_source
from attn_exp.problem.sources import Input, read_input
from tests.compose import config

X = np.random.default_rng(0).standard_normal((3, 4))
TOKENS = ("she", "likes", "coffee")


def lines(parted: str, *, head: str = "", names: bool = True) -> str:
    rows = [[*([token] if names else []), *map(repr, row)] for token, row in zip(TOKENS, X.tolist(), strict=True)]
    return head + "".join(f"{parted.join(row)}\n" for row in rows)


def npy(path: Path, array: Any = X, **settings: Any) -> None:
    with path.open("wb") as file:
        np.lib.format.write_array(file, array, **settings)


WRITERS: dict[str, tuple[str, Any, bool]] = {
    "csv": ("x.csv", lambda path: path.write_text(lines(",")), True),
    "csv without names": ("x.csv", lambda path: path.write_text(lines(",", names=False)), False),
    "csv with a head": ("x.csv", lambda path: path.write_text(lines(",", head="token,a,b,c,d\n")), True),
    "csv whose head counts": ("x.csv", lambda path: path.write_text(lines(",", head="token,0,1,2,3\n")), True),
    "csv whose head counts, without names": (
        "x.csv",
        lambda path: path.write_text(lines(",", head="0,1,2,3\n", names=False)),
        False,
    ),
    "word2vec": ("x.txt", lambda path: path.write_text(lines(" ", head="3 4\n")), True),
    "csv in capitals": ("x.CSV", lambda path: path.write_text(lines(", ")), True),
    "tsv": ("x.tsv", lambda path: path.write_text(lines("\t")), True),
    "word vectors": ("x.txt", lambda path: path.write_text(lines(" ")), True),
    "txt with commas": ("x.txt", lambda path: path.write_text(lines(",")), True),
    "savetxt": ("x.txt", lambda path: np.savetxt(path, X, fmt="%.17g", header="remark"), False),
    "npy": ("x.npy", lambda path: np.save(path, X), False),
    "npy by columns": ("x.npy", lambda path: np.save(path, np.asfortranarray(X)), False),
    "npy of one sequence": ("x.npy", lambda path: np.save(path, X[None]), False),
    "npy big-endian": ("x.npy", lambda path: np.save(path, X.astype(">f8")), False),
    "npy of version 2": ("x.npy", lambda path: npy(path, version=(2, 0)), False),
    "npz": ("x.npz", lambda path: np.savez(path, x=X), False),
    "npz of any name": ("x.npz", lambda path: np.savez(path, mine=X), False),
    "npz without names": ("x.npz", lambda path: np.savez(path, X), False),
    "npz packed": ("x.npz", lambda path: np.savez_compressed(path, embeddings=X, W_q=np.eye(4), b_q=np.ones(4)), False),
    "npz with tokens": ("x.npz", lambda path: np.savez(path, x=X, tokens=np.array(TOKENS)), True),
    "safetensors": (
        "x.safetensors",
        lambda path: save_file({"a": np.eye(2), "model.embeddings.weight": X}, path),
        False,
    ),
    "json": ("x.json", lambda path: path.write_text(json.dumps(X.tolist())), False),
    "json by name": ("x.json", lambda path: path.write_text(json.dumps({"x": X.tolist(), "tokens": TOKENS})), True),
    "json of words": (
        "x.json",
        lambda path: path.write_text(json.dumps(dict(zip(TOKENS, X.tolist(), strict=True)))),
        True,
    ),
}


def begin(*words: str) -> Input:
    found = config("embeddings=file", *words)
    return read_input(found.embeddings, seed_source(STREAMS, found.seed))


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_written_is_read(name: str, tmp_path: Path) -> None:
    file, write, named = WRITERS[name]
    write(tmp_path / file)
    started = begin(f"embeddings.file={tmp_path / file}")
    assert started.stages["x"].dtype == np.float64
    np.testing.assert_array_equal(started.stages["x"], X)
    assert started.tokens == (TOKENS if named else ("x0", "x1", "x2"))


@pytest.mark.parametrize("content", ["0,1,2\n0.5,1,0.5\n", "0,1\n0.5,0.5\n", "a,0,1,2\nb,0.5,1,0.5\n"])
def test_a_first_line_that_may_be_numbers_stays_one(content: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(content)
    assert len(begin(f"embeddings.file={path}").stages["x"]) == 2


@pytest.mark.parametrize("kind", ["float16", "float32", "int8", "uint16", "int64", "longdouble"])
def test_every_type_of_numbers_becomes_float64(kind: str, tmp_path: Path) -> None:
    array = np.arange(6).reshape(2, 3).astype(kind)
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "x.npz", x=array)
    for file in ("x.npy", "x.npz"):
        np.testing.assert_array_equal(begin(f"embeddings.file={tmp_path / file}").stages["x"], [[0, 1, 2], [3, 4, 5]])


def test_a_file_of_queries_keys_and_values_starts_there(tmp_path: Path) -> None:
    np.savez(tmp_path / "late.npz", Q=X, K=2 * X, V=3 * X)
    started = begin(f"embeddings.file={tmp_path}/late.npz", "projections=none")
    assert "x" not in started.stages
    for letter, times in (("q", 1), ("k", 2), ("v", 3)):
        np.testing.assert_array_equal(started.stages[letter], times * X)


def test_a_setting_of_an_array_may_name_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", X)
    np.savez(tmp_path / "kv.npz", k=2 * X, v=3 * X)
    words = (f"embeddings.q={tmp_path}/q.npy", f"embeddings.k={tmp_path}/kv.npz", f"embeddings.v={tmp_path}/kv.npz")
    found = config("embeddings=inline", "projections=none", *words)
    started = read_input(found.embeddings, seed_source(STREAMS, 0))
    for letter, times in (("q", 1), ("k", 2), ("v", 3)):
        np.testing.assert_array_equal(started.stages[letter], times * X)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokens.txt", "she\nlikes\n\ncoffee\n"),
        ("tokens.txt", "\ufeffshe likes  coffee\n"),
        ("tokens.json", '["she", "likes", "coffee"]'),
        ("tokens.csv", "she,1\nlikes,2\ncoffee,3\n"),
    ],
)
def test_names_of_tokens_may_lie_in_a_file_of_their_own(name: str, content: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    (tmp_path / name).write_text(content, encoding="utf-8")
    words = (f"embeddings.file={tmp_path}/x.npy", f"embeddings.tokens={tmp_path / name}")
    assert begin(*words).tokens == TOKENS
