"""Whatever a tokenizer.json makes of the package that reads it, panics and crashes of its process are one line."""

from __future__ import annotations

import base64
import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attn_exp.config.inputs import Model
from attn_exp.problem import models
from attn_exp.problem.models import _checkpoint
from attn_exp.problem.problem import Pass
from tests.checkpoints import write_bert
from tests.refusal import refusal

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds

pytest.importorskip("tokenizers")

PLAIN: dict[str, Any] = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"a": 1, "b": 2}, "unk_token": "a"},
}  # fmt: skip


def charsmap(data: bytes) -> dict[str, Any]:
    return {"normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}}


def template(name: str) -> dict[str, Any]:
    single = [{"SpecialToken": {"id": name, "type_id": 0}}]
    return {"post_processor": {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {}}}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no word for others": ({"model": {"type": "WordLevel", "vocab": {"a": 1}, "unk_token": "?"}}, "Missing [UNK]"),
    "a map that panics": (charsmap(struct.pack("<I", 4) + b"\1\0\0\0x"), "PanicException: index out of bounds"),
    "a map that aborts": (charsmap(struct.pack("<I", 2**31) + b"abc"), "cannot be used ("),
    "a mark that is not there": (template("[CLS]"), "cannot be used ("),
    "a model of another kind": ({"model": {"type": "Nothing"}}, "tokenizer.json cannot be read ("),
    "an id of another": ({"model": {"type": "WordLevel", "vocab": {"a": 2**32 - 1}, "unk_token": "a"}}, "4294967295"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_a_tokenizer_ends_in_is_one_line(name: str, tmp_path: Path) -> None:
    changed, said = BAD[name]
    write_bert(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(PLAIN | changed), encoding="utf-8")
    settings = Model(family="bert", path=str(tmp_path), text="hello a b")
    assert said in refusal(models.begin_pass, settings, Pass())


def test_one_that_comes_to_no_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 40 steps makes the text four times as long."""
    longer = {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaa"}
    write_bert(tmp_path)
    whole = PLAIN | {"normalizer": {"type": "Sequence", "normalizers": [longer] * 40}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    monkeypatch.setattr(_checkpoint, "LEAST_SECONDS", 1)
    settings = Model(family="bert", path=str(tmp_path), text="a")
    assert "tokenizer.json cannot be used (" in refusal(models.begin_pass, settings, Pass())


def test_a_text_of_bytes_that_are_none_is_refused(tmp_path: Path) -> None:
    write_bert(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(PLAIN), encoding="utf-8")
    settings = Model(family="bert", path=str(tmp_path), text="a\udce9")
    assert "model.text holds bytes that are not text" in refusal(models.begin_pass, settings, Pass())


def test_the_process_that_cuts_texts_loads_no_array_and_the_run_no_tokenizer() -> None:
    def asked(code: str) -> str:
        return subprocess.check_output([sys.executable, "-c", code], text=True).strip()

    assert asked("import attn_exp.problem.tokenizing, sys; print('numpy' in sys.modules)") == "False"
    assert asked("import attn_exp.problem.models, sys; print('tokenizers' in sys.modules)") == "False"
