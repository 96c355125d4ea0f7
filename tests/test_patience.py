"""Long work says that it goes on; short work says nothing."""

from __future__ import annotations

import time

import pytest

from attn_exp import patience


def test_a_quiet_command_says_that_it_is_at_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(patience, "FIRST", 0.05)
    monkeypatch.setattr(patience.HEARD, "last", 0.0)
    with patience.saying_so():
        time.sleep(0.4)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.endswith("so far; Ctrl-C ends it\n")
