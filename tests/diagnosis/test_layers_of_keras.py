"""Layers of Keras, computed with PyTorch or JAX."""

from __future__ import annotations

from pathlib import Path

import pytest

import attn_exp
from attn_exp.own_code import find_function

keras = pytest.importorskip("keras", reason="Keras is not installed: pip install keras")
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


NESTED = """
import keras

class Layer(keras.layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.q_dense, self.k_dense, self.v_dense = (keras.layers.Dense(units, use_bias=False) for _ in "qkv")

    def call(self, x):
        q, k, v = self.q_dense(x), self.k_dense(x), self.v_dense(x)
        return keras.layers.Attention()([q, v, k])
"""


def test_a_layer_within_a_layer_is_seen(tmp_path: Path) -> None:
    assert checked(NESTED, tmp_path).mistakes == ("no_scale",)


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


def test_layers_of_the_library_are_not_wrong() -> None:
    assert not attn_exp.check(keras.layers.MultiHeadAttention(3, 8), quick=True).is_wrong
    assert not attn_exp.check(keras.layers.MultiHeadAttention, quick=True).is_wrong
