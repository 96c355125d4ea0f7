"""Sizes that no machine holds: refused in a line before anything is drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_exp import cli
from attn_exp.errors import UserError
from attn_exp.experiment import long_runs
from tests.refusal import refused

MINE = """
def attention(q, k, v):
    raise AssertionError("it was asked")
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("embeddings=random embeddings.d_model=10000", "d_model=10000 with projections of 10000 columns needs 8.2 GiB"),
        ("embeddings=random embeddings.tokens=9000 dtype=float32 variant=[blockwise]", "dtype= needs 6.0 GiB"),
        ("embeddings=random embeddings.tokens=9000 weights=blocks", "variant multi_head needs 6.0 GiB for full"),
        (
            "embeddings=random embeddings.tokens=9000 past=3000 embeddings.memory=12000 head=8 variant=[multi_head]",
            "embeddings.tokens=6000: variant multi_head needs 21.5 GiB for full matrices of 6000 x 12000",
        ),
        ("embeddings=random embeddings.tokens=10000000 variant=[blockwise]", "needs 7.4 GiB for its vectors"),
        (
            "embeddings=random embeddings.memory.tokens=90000000 variant=[blockwise]",
            "embeddings.memory.tokens=90000000 needs 66.2 GiB for its vectors",
        ),
        (
            "embeddings=random projections.width=30000000",
            "d_model=8 with projections of 30000000 columns needs 19.7 GiB",
        ),
        (
            "-m embeddings=random embeddings.d_model=10000,20000",
            "none of the other points tried can be computed either",
        ),
        ("check mine.py:attention head=1000000", "head=1000000 needs 37.4 GiB for test cases of 11 tokens"),
        ("check mine.py:attention kv_head=1000000", "kv_head=1000000 needs"),
        ("sheet embeddings=random embeddings.tokens=1500", "a sheet of 1,500 blanks is too long"),
        (
            "explain embeddings=random embeddings.tokens=1200 variant=[matrix] answer.weights=[[1]]",
            "every known mistake",
        ),
    ],
)
def test_a_size_that_does_not_fit_is_refused_with_what_it_needs(
    words: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    monkeypatch.setattr(long_runs, "free_bytes", lambda: 4 << 30)
    if words.startswith("check"):  # which asks in a process of its own, where nothing is patched
        with pytest.raises(UserError) as error:
            cli.check_in_child(words.split()[1:], lambda said: None)
        said = str(error.value)
    else:
        said = refused(words.split(), monkeypatch, capsys)
    assert told in said and ("sheet" in words or "4.0 GiB are free; " in said)
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["mine.py"]


def test_parts_that_fit_alone_are_counted_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("embeddings=random", "embeddings.tokens=5000", "embeddings.d_model=4000")
    monkeypatch.setattr(long_runs, "free_bytes", lambda: 4 << 30)
    assert "in total), but only 4.0 GiB are free" in refused(words, monkeypatch, capsys)
