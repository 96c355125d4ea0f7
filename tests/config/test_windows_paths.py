"""Paths as Windows has them: the colon of a drive, backslashes, other machines, spaces and brackets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_exp.config.compose import overrides
from attn_exp.config.spelling import quoted
from attn_exp.errors import UserError
from attn_exp.own_code import find_function
from tests.refusal import refusal
from tests.sweeps.command import quickly

PATHS = [
    r"C:\code\mine.py",
    "C:/code/mine.py",
    r"c:\Program Files (x86)\out",
    r"D:\user's files\x",
    r"\\server\share\x y.csv",
    "C:\\out\\",
    r"C:\naive\tables\new.csv",
    r"C:\a=b\~x",
]
MINE = """import numpy as np


def attention(q, k, v):
    powers = np.exp(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]))
    return powers / powers.sum(axis=-1, keepdims=True) @ v
"""


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("key", ["output_dir", "embeddings.file", "+embeddings.memory.file", "variant.mine.form"])
def test_a_path_of_windows_is_read_as_it_stands(path: str, key: str) -> None:
    assert overrides([f"{key}={path}"])[0].value() == path


def test_several_are_several_values_and_an_interpolation_stays_one() -> None:
    swept = overrides([r"embeddings.file=C:\x.csv,C:\new.csv"])[0]
    assert [str(value) for value in swept.sweep_iterator()] == [r"C:\x.csv", r"C:\new.csv"]
    assert overrides(["output_dir=C:/${seed}"])[0].value() == "C:/${seed}"


@pytest.mark.long
@given(st.text(alphabet="\\\\\\'\"ab /:;,[]{}=()é%#~!$", min_size=1))
def test_what_is_put_into_quotes_is_read_back(text: str) -> None:
    assert overrides([f"title={quoted(text)}"])[0].value() == text


@pytest.mark.parametrize("path", [r"C:\code\mine.py", "C:/code/mine.py", r"\\server\share\mine.py", "C:mine.py/x"])
def test_the_colon_of_a_drive_names_no_function(path: str) -> None:
    if path.startswith("\\"):
        path = f"{path}:"
    assert refusal(find_function, path) == (
        f"{path}: expected a file and a function, such as mine.py:attention, or package.module:function"
    )
    with pytest.raises(UserError, match="no such file"):
        find_function(f"{path.rstrip(':').removesuffix('/x')}:attention")


@pytest.mark.long
@pytest.mark.parametrize("path", [r"\\server\share\mine.py", r"C:\co de\mine (2).py"])
def test_code_at_such_a_path_is_run_and_repeated(path: str, tmp_path: Path) -> None:
    """On this system the whole path is the name of a file."""
    (tmp_path / path).write_text(MINE, encoding="utf-8")
    words = ("variant=[matrix,mine]", f"variant.mine.form={path}:attention", "head=1", "report=none")
    quickly(tmp_path, *words)
    quickly(tmp_path, "rerun", "outputs/latest", "--own-code")
    quickly(tmp_path, "-m", *words, "seed=0,1", "sweep.name=both")
    quickly(tmp_path, "rerun", "outputs/sweeps/both", "1", "--own-code")
    about = json.loads((tmp_path / "outputs" / "latest" / "run.json").read_text(encoding="utf-8"))
    assert about["config"]["variant"]["mine"]["form"] == f"{path}:attention"
    assert about["seed"] == 1
