"""Layers of Keras, computed with PyTorch or JAX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import attn_exp

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
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2)))
        said = ops.transpose(ops.matmul(ops.softmax(scores, axis=-1), v), (0, 2, 1, 3))
        return self.last(ops.reshape(said, (entries, rows, width)))
"""


def checked(text: str, folder: Path) -> attn_exp.Verdict:
    (folder / "layer_of_keras.py").write_text(text, encoding="utf-8")
    return attn_exp.check(f"{folder / 'layer_of_keras.py'}:Layer", quick=True)


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


@pytest.mark.parametrize("code", [MADE_OF_TWO, NESTED], ids=["of its own", "within a layer"])
def test_attention_inside_a_layer_is_seen(code: str, tmp_path: Path) -> None:
    assert checked(code, tmp_path).mistakes == ("no_scale",)


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


NORMED = """
import keras
from keras import ops

class Layer(keras.layers.Layer):
    def __init__(self, dim, **others):
        super().__init__(**others)
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5)
        self.sides = [keras.layers.Dense(dim) for _ in range(3)]

    def call(self, inputs):
        q, k, v = (side(self.norm(inputs)) for side in self.sides)
        scores = ops.matmul(q, ops.transpose(k, (0, 2, 1))) / q.shape[-1] ** 0.5
        return inputs + ops.matmul(ops.softmax(scores), v)
"""


def test_a_norm_before_and_a_residual_after_are_no_mistakes(tmp_path: Path) -> None:
    assert not checked(NORMED, tmp_path).is_wrong


class Unmasked(keras.layers.Layer):  # type: ignore[name-defined] # Keras is not always there
    """It has a word for masks because all layers have one."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.sides = [keras.layers.Dense(dim) for _ in "qkv"]

    def call(self, x: Any, mask: Any = None) -> Any:
        q, k, v = (side(x) for side in self.sides)
        return keras.ops.softmax(q @ keras.ops.swapaxes(k, 1, 2) / q.shape[-1] ** 0.5, -1) @ v


def test_a_word_for_masks_that_all_layers_have_is_not_asked() -> None:
    verdict = attn_exp.check(Unmasked, quick=True)
    assert verdict.passed and "mask (its code never reads it)" in verdict.not_asked, verdict


def test_layers_of_the_library_are_not_wrong() -> None:
    assert not attn_exp.check(keras.layers.MultiHeadAttention(3, 8), quick=True).is_wrong
    assert not attn_exp.check(keras.layers.MultiHeadAttention, quick=True).is_wrong
