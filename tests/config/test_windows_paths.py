"""Paths as Windows has them: the colon of a drive, backslashes, other machines, spaces and brackets."""

from __future__ import annotations

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hypothesis import given
from hypothesis import strategies as st

from attn_exp.config.compose import quote_sentence
from attn_exp.config.spelling import quote_for_hydra, quoted

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


def overrides(words: list[str]) -> list[Override]:
    return OverridesParser.create().parse_overrides([quote_sentence(quote_for_hydra(word)) for word in words])


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
