"""Every mistake of a user gets one line in their own words, exit code 2, and leaves nothing behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from attn_exp import cli

VECTORS = "embeddings=inline embeddings.vectors={}"

MISTAKES = [
    ("head=3", "head=3 does not divide d_model=4; choose one of 1, 2, 4"),
    ("head=two", "head=two: expected a whole number of at least 1"),
    ("head=0", "head=0: expected a whole number of at least 1"),
    ("head=2.5", "head=2.5: expected a whole number of at least 1"),
    ("head=true", "head=true: expected a whole number of at least 1"),
    ("seed=-1", "seed=-1: expected a whole number of at least 0"),
    ("heads=2", "unknown setting 'heads'; did you mean head? choose one of "),
    ("+heads=2", "unknown setting 'heads'; did you mean head? choose one of "),
    ("scale=maybe", "scale=maybe: expected true, false, or the multiplier as a number"),
    ("scale=nan", "scale=nan: expected true, false, or the multiplier as a number"),
    ("bias=1", "bias=1: expected true or false"),
    ("embeddings=the_cat_st", "unknown embeddings 'the_cat_st'; did you mean the_cat_sat? choose one of "),
    ("variant=[looped,nope]", "unknown variant 'nope'; did you mean looped? choose one of "),
    ("variant=[]", "variant=[] compares nothing; choose at least one"),
    ("head=2,4", "head=2,4: to run several values, sweep with -m head=2,4"),
    ("--head 2", "unknown option --head; settings take no dashes: write head=..."),
    ("--head=2", "unknown option --head=2; settings take no dashes: write head=2"),
    ("-head=2", "unknown option -head=2; settings take no dashes: write head=2"),
    ("head= 2", "write key=value, without spaces"),
    ("mistake=weights_transpose", "did you mean weights_transposed?"),
    ("variant.looped.fom=matrix", "unknown setting 'variant.looped.fom'; did you mean variant.looped.form?"),
    ("variant.looped.form=lopped", "did you mean looped?"),
    ("embeddings.d_model=5", "embeddings.d_model=5, but the vectors have 4 numbers"),
    ("projections=none", "projections=none"),
    (VECTORS.format("[[1,2],[3]]"), "embeddings.vectors is ragged: rows of 2, 1 numbers"),
    (VECTORS.format("[]"), "expected a list of rows, such as [[1,0],[0,1]]"),
    (VECTORS.format("[[]]"), "embeddings.vectors is empty"),
    (VECTORS.format("[[1,2],[3,four]]"), "embeddings.vectors: row 1 holds 'four', which is not a number"),
    (VECTORS.format("[[1,2],[3,nan]]"), "embeddings.vectors: row 1, column 1 holds nan; expected finite numbers"),
    (VECTORS.format("[[1,inf],[3,4]]"), "embeddings.vectors: row 0, column 1 holds inf; expected finite numbers"),
    (
        VECTORS.format("[[1,2],[3,4]]") + " embeddings.tokens=[a,b,c]",
        "embeddings.tokens names 3 tokens, but there are 2 vectors",
    ),
    ("embeddings=inline", "embeddings has nothing to start from"),
    ("embeddings=inline embeddings.file=nowhere.npy", "embeddings.file=nowhere.npy: cannot be read"),
    ("--config-dir nowhere", "--config-dir nowhere: no such folder"),
    ("output_dir=a_file/inside", "output_dir=a_file/inside"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_one_line_and_exit_code_2(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").write_text("")
    monkeypatch.setattr(sys, "argv", ["attn-exp", *words.split(" ")])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    printed = capsys.readouterr()
    assert stop.value.code == 2
    assert printed.out == ""
    assert printed.err.startswith("attn_exp: error: ")
    assert printed.err.count("\n") == 1
    assert message in printed.err
    assert os.listdir(tmp_path) == ["a_file"]


def test_an_error_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "execute", broken)
    monkeypatch.setattr(sys, "argv", ["attn-exp"])
    with pytest.raises(ZeroDivisionError, match="ours"):
        cli.main()


def test_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "execute", interrupted)
    monkeypatch.setattr(sys, "argv", ["attn-exp"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 130
    assert os.listdir(tmp_path) == []
