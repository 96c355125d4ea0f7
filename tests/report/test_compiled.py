"""Templates are compiled once, and anew whenever their text changed or what was kept cannot be read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment, FileSystemLoader

from attn_exp.report.templating import Compiled


class Watched(Environment):
    """An environment that counts what it compiles."""

    compilations = 0

    def compile(self, *arguments: Any, **options: Any) -> Any:
        Watched.compilations += 1
        return super().compile(*arguments, **options)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Watched, "compilations", 0)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "page").write_text("{{ word }}")
    return tmp_path


def rendered(folder: Path) -> str:
    environment = Watched(loader=FileSystemLoader(folder), bytecode_cache=Compiled(str(folder / "kept")))
    return environment.get_template("page").render(word="said")


@pytest.mark.parametrize("length", [0, 10, 40, -100])
def test_what_was_kept_in_part_is_compiled_anew(length: int, folder: Path) -> None:
    rendered(folder)
    (kept,) = (folder / "kept").iterdir()
    kept.write_bytes(kept.read_bytes()[:length])
    assert [rendered(folder), rendered(folder)] == ["said", "said"]
    assert Watched.compilations == 2
