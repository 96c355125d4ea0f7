"""A layer of Keras that is built and called with a list of inputs, of which a switch says how many are read."""

from __future__ import annotations

import inspect
from typing import Any

from attn_exp.diagnosis.asking.uses import keywords_read, uses_of
from attn_exp.diagnosis.making.guessing import About, guesses
from attn_exp.diagnosis.matrices.module_sizes import Sizes


class OfWindows:
    """What tells it that keys are others is counted with; its window is a number, of which it makes two."""

    def __init__(self, window: int, with_others: Any) -> None:
        window = (window, window)  # type: ignore[assignment] # it is called the same
        self.window: Any = window
        self.with_others = with_others
        self.parts = 3 - int(self.with_others)

    def rows(self) -> Any:
        return None if self.with_others else self.window[0] * self.window[1]


def test_a_switch_may_be_counted_with_and_a_whole_number_is_no_pair_though_pairs_are_made_of_it() -> None:
    uses = uses_of(OfWindows)
    assert uses["with_others"].is_switch and not uses["window"].is_switch
    window = inspect.signature(OfWindows).parameters["window"]
    assert type(guesses(window, Sizes(8, 2, 4, 2), About(OfWindows, uses))[0]) is int


class Renamed:
    def __init__(self, width: int, **kwargs: Any) -> None:
        if "input_shape" not in kwargs and "input_dim" in kwargs:
            kwargs["input_shape"] = (kwargs.pop("input_dim"),)
        self.width, self.kept = width, kwargs


def test_a_keyword_that_is_only_written_is_not_read() -> None:
    assert list(keywords_read(Renamed.__init__)) == ["input_dim"]
