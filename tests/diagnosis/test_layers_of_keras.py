"""Layers of Keras, computed with PyTorch or JAX."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import attn_exp
from attn_exp.own_code import find_function

pytest.importorskip("keras", reason="Keras is not installed: pip install keras")
pytestmark = pytest.mark.long
MADE_OF_TWO = """
import keras
from keras import ops

class Layer(keras.layers.Layer):
    def __init__(self, units, num_heads):
        super().__init__()
        self.heads, self.size = num_heads, units // num_heads
        self.first = {side: keras.layers.Dense(units, activation="tanh") for side in "qkv"}
        self.then = {side: keras.layers.Dense(units) for side in "qkv"}
        self.last = keras.layers.Dense(units)

    def call(self, x):
        entries, rows, width = x.shape
        q, k, v = (ops.transpose(ops.reshape(self.then[side](self.first[side](x)),
                   (entries, rows, self.heads, self.size)), (0, 2, 1, 3)) for side in "qkv")
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) FACTOR
        said = ops.transpose(ops.matmul(ops.softmax(scores, axis=-1), v), (0, 2, 1, 3))
        return self.last(ops.reshape(said, (entries, rows, width)))
"""


def checked(text: str, folder: Path, *words: str) -> attn_exp.Verdict:
    (folder / "layer_of_keras.py").write_text(text, encoding="utf-8")
    return attn_exp.check(find_function(f"{folder / 'layer_of_keras.py'}:Layer").function, *words)


@pytest.mark.parametrize(("factor", "names"), [("", ("no_scale",))])
def test_attention_inside_a_layer_of_keras_is_seen(factor: str, names: tuple[str, ...], tmp_path: Path) -> None:
    verdict = checked(MADE_OF_TWO.replace("FACTOR", factor), tmp_path)
    assert verdict.passed == (not names) and verdict.mistakes == names, verdict


ANOTHER_ORDER = """
import keras

class Layer(keras.layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.q_dense, self.k_dense, self.v_dense = (keras.layers.Dense(units, use_bias=False) for _ in "qkv")

    def call(self, x):
        q, k, v = self.q_dense(x), self.k_dense(x), self.v_dense(x)
        return keras.layers.Attention()([ORDER])
"""


@pytest.mark.parametrize(("order", "names"), [("q, v, k", ("no_scale",)), ("q, k, v", ("no_scale", "qkv_order"))])
def test_keys_and_values_that_change_places_are_told_by_what_their_author_calls_them(
    order: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    assert checked(ANOTHER_ORDER.replace("ORDER", order), tmp_path).mistakes == names


OF_DROPOUT = """
import keras
from keras import ops

class Layer(keras.layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.units, self.drop = units, keras.layers.Dropout(0.1)

    def build(self, input_shape):
        self.sides = [self.add_weight(shape=(self.units, self.units), name=name) for name in "qkv"]

    def call(self, x, training=False):
        q, k, v = (ops.matmul(x, side) for side in self.sides)
        weights = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 2, 1))) / self.units ** 0.5)
        return ops.matmul(self.drop(weights, training=training), v)
"""


@pytest.mark.parametrize(("training", "names"), [("training", ()), ("True", ("dropout_on",))])
def test_sublayers_and_weights_of_a_layer_have_one_type_while_it_is_watched(
    training: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    verdict = checked(OF_DROPOUT.replace("training=training)", f"training={training})"), tmp_path)
    assert verdict.passed == (not names) and verdict.mistakes == names, verdict


OF_VALUES = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import keras
from keras import ops

class Layer(keras.layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.sides = [keras.layers.Dense(units) for _ in "qkv"]

    def call(self, x, first=0):
        q, k, v = (side(x) for side in self.sides)
        start = ops.cast(first, "float32")
        places = ops.arange(start, start + x.shape[1])
        scores = ops.matmul(q, ops.transpose(k, (0, 2, 1))) / x.shape[2] ** 0.5
        scores = ops.where(places[:, None] < places[None, :], -1e9, scores)
        return ops.matmul(ops.softmax(scores, axis=-1), v)
"""


def test_numbers_that_are_wanted_at_once_are_there_on_jax(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
    (tmp_path / "of_values.py").write_text(OF_VALUES, encoding="utf-8")
    words = [sys.executable, "-m", "attn_exp", "check", f"{tmp_path / 'of_values.py'}:Layer", "mask=causal"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


OF_IMAGES = """
import keras
from keras import ops

class Layer(keras.layers.Layer):
    def __init__(self, filters, num_heads=2, norm_layer=keras.layers.BatchNormalization, channel_axis=None,
                 data_format=None):
        super().__init__()
        self.filters, self.heads, self.norm_layer = filters, num_heads, norm_layer
        self.channel_axis, self.data_format = channel_axis, data_format

    def build(self, shapes):
        SHAPE
        width = shape[self.channel_axis]
        self.sides = [keras.layers.Conv2D(width, 1, data_format=self.data_format) for _ in "qkv"]
        for side in self.sides:
            side.build(shape)
        self.last = keras.layers.Conv2D(self.filters, 1, data_format=self.data_format)
        self.last.build(shape)

    def call(self, x):
        if self.data_format != "channels_last":
            raise ValueError("it is told how an image lies")
        entries, height, width, size = x.shape
        q, k, v = (ops.transpose(ops.reshape(side(x), (entries, height * width, self.heads, -1)), (0, 2, 1, 3))
                   for side in self.sides)
        weights = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / q.shape[-1] ** 0.5, axis=-1)
        said = ops.transpose(ops.matmul(weights, v), ORDER)
        return self.last(ops.reshape(said, (entries, height, width, size)))
"""


@pytest.mark.parametrize("shape", ["shape = shapes", "shape = shapes[0]; shape[-1]"])
@pytest.mark.parametrize(("order", "names"), [("(0, 2, 1, 3)", ()), ("(0, 1, 3, 2)", ("heads_merged_wrong",))])
def test_layers_that_a_model_tells_how_images_lie_are_told(
    shape: str, order: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    """The second order puts numbers of heads before tokens, so that a reshape mixes them, as in some published code."""
    verdict = checked(OF_IMAGES.replace("SHAPE", shape).replace("ORDER", order), tmp_path)
    assert verdict.passed == (not names) and verdict.mistakes == names, verdict
