"""`attn-exp check FILE.py`: every attention of a file in a table, and what ends the process is a line of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from attn_exp import cli
from attn_exp.diagnosis.whole_file import names_in_file, table
from attn_exp.own_code import module_of_functions
from tests.refusal import refused

FILE = """
import os
from functools import lru_cache, partial, wraps
import numpy as np
from numpy import einsum

def softmax(s, axis=-1):
    p = np.exp(s - s.max(axis, keepdims=True))
    return p / p.sum(axis, keepdims=True)

def split_heads(x, n):
    return x.reshape(*x.shape[:-1], n, -1)

def scores(q, k):
    return q @ k.swapaxes(-1, -2)

def right(q, k, v):
    print("hello")
    return softmax(scores(q, k) / np.sqrt(q.shape[-1])) @ v

def unscaled(q, k, v):
    return softmax(scores(q, k)) @ v

def ends(q, k, v):
    os._exit(softmax(scores(q, k)).ndim)

def needs(q, k, v, gadget):
    return softmax(gadget(q, k)) @ v

def wrapped(f):
    @wraps(f)
    def inner(*given, **named):
        return f(*given, **named)
    return inner

class Kept:
    @staticmethod
    def attend(q, k, v):
        return right(q, k, v)

    def __call__(self, q, k, v):
        return right(q, k, v)

made, half, same, again = Kept(), partial(right), right, wrapped(right)

class Broken(ValueError):
    pass
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "all_mine.py").write_text(FILE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "all_mine", ModuleType("all_mine"))
    return Path("all_mine.py")


def test_what_was_made_in_a_file_is_asked_and_its_code_says_what_may_be_attention(file: Path) -> None:
    names = {one["name"]: one["attends"] for one in names_in_file(str(file), module_of_functions(str(file)))}
    assert [name for name, attends in names.items() if attends] == [
        "right", "unscaled", "ends", "needs", "Kept", "Kept.attend", "made", "half", "again",
    ]  # fmt: skip
    assert [name for name, attends in names.items() if not attends] == ["softmax", "split_heads", "scores", "wrapped"]


@pytest.mark.long
def test_a_table_has_a_line_for_each(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["attn-exp", "check", str(file), "--quick"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    said = capsys.readouterr().out
    assert stop.value.code == 1
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in said.splitlines() if line.startswith("  ")}
    assert lines["right"] == lines["Kept.attend"] == lines["made"] == lines["half"] == lines["again"] == "right"
    assert lines["unscaled"] == "wrong no_scale"
    assert lines["ends"].startswith("not verified it ended without an answer (exit code 4)")
    assert lines["needs"].startswith("not verified could not be called: needs 'gadget'")
    file.write_text(FILE.replace("def unscaled", "def _").replace("_(q, k, v", "_(q, k"), encoding="utf-8")
    with pytest.raises(SystemExit, match="3"):  # nothing is wrong, and not all is verified
        cli.main()
    assert said.endswith("Not attention: softmax, split_heads, scores, wrapped\n")


@pytest.mark.long
def test_nothing_that_can_be_called_is_a_users_mistake(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("def softmax(x):\n    return x\n", encoding="utf-8")
    line = refused(["check", str(file), "--quick"], monkeypatch, capsys)
    assert "all_mine.py: no attention that can be called" in line


@pytest.mark.long
def test_json_is_a_list(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(FILE.partition("def unscaled")[0], encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["attn-exp", "check", str(file), "--quick", "--json"])
    cli.main()
    assert [(one["name"], one["passed"]) for one in json.loads(capsys.readouterr().out)] == [("right", True)]


def test_a_table_says_the_words_to_pass() -> None:
    verdict = {"outcome": "right", "mistakes": [], "computes": "attention", "right_under": "mask=causal"}
    rows = [{"name": "mine", "attends": True, "uncalled": "", "verdict": verdict}]
    assert "mine  right         right under mask=causal" in table("a.py", rows, "plain attention")


def test_code_of_a_second_file_of_one_name_is_its_own(tmp_path: Path) -> None:
    for folder, text in (
        ("one", "def first(q, k, v):\n    return q\n"),
        ("two", "def second(q, k, v):\n    return k\n"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one_name_of_two.py").write_text(text, encoding="utf-8")
        module = module_of_functions(str(tmp_path / folder / "one_name_of_two.py"))
        assert sys.modules["one_name_of_two"] is module
    before = sys.modules["json"]
    (tmp_path / "json.py").write_text("def third(q, k, v):\n    return v\n", encoding="utf-8")
    module_of_functions(str(tmp_path / "json.py"))
    assert sys.modules["json"] is before
