"""A run whose arrays or tables somebody changed, under a new seal, is refused in a line or shown as it is now."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_exp.errors import UserError
from attn_exp.runs import execution, store
from attn_exp.sweeps.compare import compare
from tests.runs.test_store import a_run, reseal

Change = Callable[[Any], Any]

ARRAYS: dict[str, tuple[str, Change]] = {
    "x as texts": ("x", lambda x: x.astype(str)),
    "x of NaN": ("x", lambda x: x * np.nan),
    "tokens that are numbers": ("tokens", lambda tokens: np.arange(len(tokens))),
    "tokens of letters that there are not": (
        "tokens",
        lambda tokens: np.full((len(tokens), 4), 2**31 - 1, "u4").view("U4")[:, 0],
    ),
    "a key less": ("key_tokens", lambda tokens: tokens[:-1]),
    "a past": ("past", lambda past: np.array(1)),
    "a past without end": ("past", lambda past: np.array(np.inf)),
    "no q": ("q", lambda q: None),
    "logits of a query less": ("multi_head/logits", lambda logits: logits[:, 1:]),
    "an output of complex numbers": ("multi_head/output", lambda output: output * 1j),
    "a rung of a query less": ("multi_head/step 2/weights", lambda weights: weights[:, 1:]),
    "a context of another width": ("multi_head/context", lambda context: context[..., :-1]),
    "no values": ("multi_head/v", lambda v: v[..., :0]),
    "heads that do not divide": ("multi_head/k", lambda k: np.concatenate([k, k, k])),
    "an output of a column more": ("multi_head/output", lambda output: np.hstack([output, output[:, :1]])),
}

TABLES: dict[str, tuple[str, Callable[[list[str]], list[str]]]] = {
    "rows in another order": ("comparison.csv", lambda lines: [lines[0], *lines[:0:-1]]),
    "a row of another": ("comparison.csv", lambda lines: [*lines[:-1], lines[-1].replace("multi_head", "other", 1)]),
    "another form": ("comparison.csv", lambda lines: [*lines[:-1], lines[-1].replace(",matrix", ",looped", 1)]),
    "digits without end": ("comparison.csv", lambda lines: [*lines[:-1], f"{lines[-1]}{'9' * 5000}"]),
    "a distance to a stranger": (
        "distances.csv",
        lambda lines: [line.replace("multi_head", "other") for line in lines],
    ),
    "a step to a stranger": ("steps.csv", lambda lines: [line.replace("looped", "other") for line in lines]),
    "a carriage return": ("timings.csv", lambda lines: [lines[0], f"a\rb{lines[1]}", *lines[2:]]),
}


@cache
def kept() -> dict[str, bytes]:
    """Return the files of a run."""
    folder = store.save(a_run(), Path("kept"))
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    shutil.rmtree("kept")
    return files


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, data in kept().items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def change_array(folder: Path, array: str, change: Change) -> None:
    with np.load(folder / "results.npz") as stored:
        arrays = dict(stored)
    changed = change(arrays.pop(array))
    np.savez(folder / "results.npz", **arrays | ({} if changed is None else {array: changed}))


@pytest.mark.long
@pytest.mark.parametrize("name", [*ARRAYS, *TABLES])
def test_what_does_not_fit_ends_no_command_with_a_traceback(name: str, folder: Path) -> None:
    if name in ARRAYS:
        change_array(folder, *ARRAYS[name])
    else:
        file, change = TABLES[name]
        lines = (folder / file).read_text().splitlines()
        (folder / file).write_text("\n".join(change(lines)) + "\n")
    reseal(folder)
    for command in (lambda: execution.render_again(folder), lambda: compare([str(folder), str(folder)])):
        with contextlib.suppress(UserError):
            command()


def test_the_run_as_it_was_opens(folder: Path) -> None:
    assert store.load(folder).comparison.rows
