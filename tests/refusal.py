"""The command line in this process: what it says to a user's mistake."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from attn_exp import cli


def refused(words: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line that a command ends with, whose exit code is 2 and which prints nothing else."""
    monkeypatch.setattr(sys, "argv", ["attn-exp", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    printed = capsys.readouterr()
    assert (stop.value.code, printed.out) == (2, "")
    assert printed.err.startswith("attn_exp: error: ")
    assert printed.err.count("\n") == 1
    return printed.err
