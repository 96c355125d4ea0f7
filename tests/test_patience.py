"""Long work says where it is and how long it takes; short work says nothing."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from attn_exp import patience
from attn_exp.forms.looped import attend
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.rules import Rules


def test_a_quiet_command_says_where_it_is_once_it_is_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(patience, "FIRST", 0.05)
    monkeypatch.setattr(patience.HEARD, "last", 0.0)
    with patience.saying_where():
        time.sleep(0.4)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.endswith("so far, Ctrl-C ends it\n")


def test_a_place_is_that_of_the_deepest_room() -> None:
    places = []

    class Telling(Causal):
        def allows(self, grid: object) -> bool:
            places.append(patience.where(sys._getframe()))
            return True

    x = np.ones((1, 1, 2))
    attend(x, x, x, Rules(scale=1.0, masks=(Telling(),)))
    assert places == ["attention is computed"]
    assert patience.where(sys._getframe()) == "at work"
