"""What is said to a user's mistake: by the command line in this process, or by a call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from attn_exp import cli
from attn_exp.errors import UserError


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


def refusal(call: Callable[..., object], *given: Any, **settings: Any) -> str:
    """Return the one line that a call refuses what it is given with."""
    with pytest.raises(UserError) as error:
        call(*given, **settings)
    message = str(error.value)
    assert "\n" not in message
    return message
