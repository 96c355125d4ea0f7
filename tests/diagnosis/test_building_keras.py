"""A layer of Keras gets its weights in a first call that JAX traces, and whose numbers NumPy draws."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from attn_exp.diagnosis.matrices.building_keras import DRAWN, drawn_in_numpy, without_logs

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")


@pytest.mark.parametrize(("name", "mean", "variance", "low", "high"), [
    ("uniform", 1.0, 4 / 3, -1.0, 3.0), ("normal", 0.0, 1.0, -9.0, 9.0),
    ("truncated_normal", 0.0, 0.774, -2.0, 2.0),
])  # fmt: skip
def test_numbers_are_drawn_as_jax_has_them(name: str, mean: float, variance: float, low: float, high: float) -> None:
    """The variance of a normal distribution cut at 2 is 1 - 4 phi(2) / (2 Phi(2) - 1) = 0.774."""
    of_each = {"uniform": {"minval": -1.0, "maxval": 3.0}, "truncated_normal": {"lower": -2.0, "upper": 2.0}}
    given = of_each.get(name, {})

    def draw(seed: int) -> Any:
        return getattr(jax.random, name)(jax.random.PRNGKey(seed), shape=(200, 100), dtype="float32", **given)

    theirs = draw(3)
    with drawn_in_numpy():
        ours, again, other = (np.asarray(draw(seed)) for seed in (3, 3, 4))
    assert ours.dtype == np.float32 and ours.shape == theirs.shape
    assert np.array_equal(ours, again) and not np.array_equal(ours, other)
    for drawn in (ours, np.asarray(theirs)):
        assert abs(drawn.mean() - mean) < 0.05 and abs(drawn.var() - variance) < 0.05
        assert low <= drawn.min() and drawn.max() <= high
    assert not np.array_equal(ours, theirs)
    assert np.array_equal(theirs, draw(3))  # and it is put back
    assert set(DRAWN) <= set(vars(jax.random))


def test_what_a_failing_call_logs_is_kept_and_later_logs_are_not(caplog: Any) -> None:
    with without_logs():
        logging.getLogger("one of others").error("of a try")
    logging.getLogger("one of others").error("of now")
    assert [one.message for one in caplog.records] == ["of now"]


LAYER = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import jax, keras, numpy as np
from attn_exp.diagnosis.matrices.pure_layers import taken_apart_once_built

class Layer(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.idle = keras.layers.Dense(6), keras.layers.Dense(6)
        self.calls = []

    def build(self, shape):
        self.gain = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x, other=None):
        self.calls.append(isinstance(x, jax.core.Tracer))
        if x.shape[1] == 1:
            raise ValueError("one token")
        return self.first(x * self.gain) if other is None else self.idle(x)

layer, x = Layer(), np.random.default_rng(1).standard_normal((2, 3, 4)).astype("float32")
call = taken_apart_once_built(layer)
try:
    call(x[:, :1])
except ValueError as error:
    print(error, "call" in vars(layer))
said, _, _ = [call(x) for _ in range(3)]
print(layer.calls)
kernel, bias = map(np.asarray, layer.first.weights)
print(np.allclose(said, x @ kernel + bias, atol=1e-5), 0.5 < np.abs(kernel).max() < 0.775, len(layer.weights))
said = call(x, other=True)
print(np.allclose(said, x @ np.asarray(layer.idle.weights[0]), atol=1e-5), len(layer.weights))
"""
SAYS = """\
one token False
[True, True, True]
True True 3
True 5
"""
"""Its code runs once to be built and once for each shape, and never with numbers. Glorot's numbers of a matrix of 4
rows and 6 columns are at most sqrt(6 / 10) = 0.775; a part that is called later is built then."""


@pytest.mark.long
def test_a_layer_is_built_by_tracing_it() -> None:
    pytest.importorskip("keras", reason="Keras is not installed: pip install keras")
    done = subprocess.run([sys.executable, "-c", LAYER], capture_output=True, text=True, check=False)
    assert done.stdout == SAYS, done.stdout + done.stderr[-3000:]
