"""The benchmark that switches functions of the check off."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from attn_exp.diagnosis.asking import offer, unread
from tests import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))  # it imports world.py and check.py, which lie beside it
knockout: Any = import_module("knockout")


@contextmanager
def kept(function: Any) -> Iterator[None]:
    """Give a function its own code back in the end."""
    before = function.__code__, function.__defaults__, function.__kwdefaults__
    try:
        yield
    finally:
        function.__code__, function.__defaults__, function.__kwdefaults__ = before


def test_a_function_that_is_off_returns_nothing_wherever_it_was_imported() -> None:
    found = {name: kind for _, name, _, kind in knockout.mechanisms(1)}
    for name, function, arguments, nothing in (
        ("asking.offer:words_set_aside", offer.words_set_aside, (len,), []),
        ("asking.unread:never_read", unread.never_read, (len, ["x"]), set()),
    ):
        with kept(function):
            knockout.switch_off(name, found[name])
            assert list(function(*arguments)) == list(nothing)


def test_black_box_questions_and_the_classroom_are_never_off() -> None:
    names = {name for _, name, _, _ in knockout.mechanisms(1)}
    assert not [name for name in names if name.startswith(("calling.behaviour", "classroom", "sheets"))]
    assert len(names) > 100
