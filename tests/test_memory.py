"""Where memory ends all the same, a command ends in one line."""

from __future__ import annotations

import errno
import sys

import pytest

from attn_exp import cli


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 1.07 GiB for an array"),
        MemoryError(),
        RuntimeError("can't start new thread"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_memory_that_runs_out_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(words: object) -> int:
        raise error

    monkeypatch.setattr(cli, "obey", fail)
    monkeypatch.setattr(sys, "argv", ["attn-exp"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    said = capsys.readouterr().err
    assert stop.value.code == cli.USAGE and said.count("\n") == 1
    assert said.startswith("attn_exp: error: it does not fit into memory")
