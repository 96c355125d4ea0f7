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
    with patience.saying_where():
        patience.count(0, 200)
        patience.count(50, 200)
        time.sleep(0.4)
        patience.count(200, 200)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "50 of 200, about" in said and said.endswith("so far, Ctrl-C ends it\n")


def test_what_was_said_a_moment_ago_is_enough(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(patience, "FIRST", 0.3)
    with patience.saying_where():
        for _ in range(5):
            time.sleep(0.1)
            patience.spoken()
    assert capsys.readouterr().err == ""


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


@pytest.mark.parametrize(
    ("seconds", "said"), [(1, "1 s"), (89, "89 s"), (600, "10 min"), (7200, "2.0 h"), (86400 * 5.4e6, "5,400,000 days")]
)
def test_times_are_said_as_readers_say_them(seconds: float, said: str) -> None:
    assert patience.spoken_time(seconds) == said
