"""A layer of Keras that is built and called with a list of inputs, of which a switch says how many are read."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import attn_exp
from attn_exp.diagnosis.asking.uses import keywords_read, uses_of
from attn_exp.diagnosis.making.guessing import About, guesses
from attn_exp.diagnosis.matrices.module_sizes import Sizes

OF_A_LIST = """
import keras
from keras import ops

class Layer(keras.layers.Layer):
    def __init__(self, window: int, units, asked_otherwise):
        super().__init__()
        self.window, self.units, self.asked_otherwise = (window, window), units, asked_otherwise

    def build(self, input_shape):
        assert input_shape[0][-1] == self.units
        self.parts = 3 - int(self.asked_otherwise)
        self.inner = keras.layers.Dense(self.parts * self.units)

    def call(self, inputs):
        if self.asked_otherwise:
            inputs, q = inputs
            k, v = ops.split(self.inner(inputs), self.parts, axis=-1)
        else:
            inputs = inputs[0]
            q, k, v = ops.split(self.inner(inputs), self.parts, axis=-1)
        scores = ops.matmul(q, ops.transpose(k, (0, 2, 1))) / SCALE
        return ops.matmul(ops.softmax(ops.reshape(scores, (-1, *[self.window[0] * self.window[1]] * 2))), v)
"""


@pytest.mark.long
@pytest.mark.parametrize(("scale", "names"), [("self.units ** 0.5", ()), ("1.0", ("no_scale",))])
def test_a_layer_of_a_list_of_inputs_is_asked_with_one(scale: str, names: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("keras", reason="Keras is not installed: pip install keras")
    (tmp_path / "of_a_list.py").write_text(OF_A_LIST.replace("SCALE", scale), encoding="utf-8")
    verdict = attn_exp.check(f"{tmp_path / 'of_a_list.py'}:Layer", quick=True)
    assert verdict.mistakes == names and verdict.passed is not bool(names), verdict


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
