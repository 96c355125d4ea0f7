"""Layers of Flax, Haiku, Equinox and Keras under JAX: norms, residuals, masks, random keys and configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

import attn_exp
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.judging.check import check
from attn_exp.experiment.verdict import Verdict
from attn_exp.own_code import find_function

pytestmark = pytest.mark.long
ATTEND = """
import jax, jax.numpy as jnp

def attend(q, k, v, heads, mask=None):
    q, k, v = (side.reshape(len(side), heads, -1).swapaxes(0, 1) for side in (q, k, v))
    scores = q @ k.swapaxes(1, 2) / q.shape[-1] ** 0.5
    shares = jax.nn.softmax(scores if mask is None else jnp.where(mask, scores, -1e30), -1)
    return (shares @ v).swapaxes(0, 1).reshape(v.shape[1], -1)
"""
OF_FLAX = f"""{ATTEND}
import flax.linen as nn

class Layer(nn.Module):
    dim: int
    heads: int

    @nn.compact
    def __call__(self, x):
        y = nn.Dense(3 * self.dim)(nn.LayerNorm()(x))
        said = jax.vmap(lambda one: attend(*jnp.split(one, 3, -1), self.heads))(y)
        return x + nn.RMSNorm()(nn.Dense(self.dim)(said))
"""
OF_NNX = f"""{ATTEND}
from flax import nnx

class Layer(nnx.Module):
    def __init__(self, channels, heads, groups, rngs):
        self.heads = heads
        self.norm = nnx.GroupNorm(channels, num_groups=groups, rngs=rngs)
        self.sides, self.last = nnx.Linear(channels, 3 * channels, rngs=rngs), nnx.Linear(channels, channels, rngs=rngs)
        self.norm_of_q = nnx.RMSNorm(channels, rngs=rngs)

    def __call__(self, x):
        q, k, v = jnp.split(self.sides(self.norm(x)), 3, -1)
        return x + self.last(jax.vmap(lambda *one: attend(*one, self.heads))(self.norm_of_q(q), k, v))
"""
OF_EQUINOX_MAPPED = f"""{ATTEND}
import equinox as eqx

class Layer(eqx.Module):
    norm: eqx.nn.LayerNorm
    sides: eqx.nn.Linear
    last: eqx.nn.Linear
    heads: int = eqx.field(static=True)

    def __init__(self, width, heads, *, key):
        one, two = jax.random.split(key)
        self.sides, self.last = eqx.nn.Linear(width, 3 * width, key=one), eqx.nn.Linear(width, width, key=two)
        self.norm, self.heads = eqx.nn.LayerNorm(width), heads

    def __call__(self, x):
        q, k, v = jnp.split(jax.vmap(self.sides)(x), 3, -1)
        return jax.vmap(self.norm)(x + jax.vmap(self.last)(attend(q, k, v, self.heads)))
"""
OF_KERAS = """
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


def verdict_on(text: str, folder: Path) -> Verdict:
    """Return what a check says of the layer of a file."""
    file = folder / "layer.py"
    file.write_text(text, encoding="utf-8")
    return check(find_function(f"{file}:Layer"), Request(), quick=True)


OF_FLAX_WITH_SMALL_EPS = f"""{ATTEND}
import flax.linen as nn

class Layer(nn.Module):
    dim: int
    heads: int

    @nn.compact
    def __call__(self, x):
        said = jax.vmap(lambda one: attend(*jnp.split(one, 3, -1), self.heads))(nn.Dense(3 * self.dim)(x))
        return nn.LayerNorm(epsilon=1e-12)(x + nn.Dense(self.dim)(said))
"""


OF_SCALED_QUERIES = f"""{ATTEND}
import flax.linen as nn

class Layer(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x):
        sides = {{name: nn.Dense(x.shape[-1], use_bias=False, name=name)(x) for name in ("query", "key", "value")}}
        q, v = sides["query"], sides["value"]
        return jax.vmap(lambda *one: attend(*one, self.heads))(q / 2, 2 * q, v)
"""


OF_ONE_HEAD = """
import equinox as eqx
import jax

class Layer(eqx.Module):
    n_heads: int
    q: eqx.nn.Linear
    k: eqx.nn.Linear
    v: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, d_model, n_heads, key):
        self.n_heads = n_heads
        keys = jax.random.split(key, 4)
        self.q, self.k, self.v, self.out = (eqx.nn.Linear(d_model, d_model, key=one) for one in keys)

    def __call__(self, x):
        q, k, v = (jax.vmap(one)(x) for one in (self.q, self.k, self.v))
        return jax.vmap(self.out)(jax.nn.softmax(q @ k.T / q.shape[-1] ** 0.5) @ v)
"""


TOLD_WHERE_MADE = """
import flax.linen as nn, jax.numpy as jnp
from typing import Optional

class Head(nn.Module):
    head_size: int
    deterministic: Optional[bool] = None

    @nn.compact
    def __call__(self, x, deterministic: Optional[bool] = None):
        still = nn.merge_param("deterministic", self.deterministic, deterministic)
        q, k, v = (nn.Dense(self.head_size)(x) for _ in "qkv")
        shares = nn.softmax(q @ k.swapaxes(1, 2) / q.shape[-1] ** 0.5)
        return nn.Dropout(0.1)(shares, deterministic=still) @ v

class Layer(nn.Module):
    num_heads: int
    head_size: int
    deterministic: Optional[bool] = None

    @nn.compact
    def __call__(self, x, deterministic: Optional[bool] = None):
        heads = [Head(self.head_size, self.deterministic)(x) for _ in range(self.num_heads)]
        return nn.Dense(x.shape[-1])(jnp.concatenate(heads, -1))
"""


@pytest.mark.parametrize(
    ("library", "text", "names"),
    [
        ("flax", OF_FLAX, ()), ("flax", OF_NNX, ()), ("flax", OF_FLAX_WITH_SMALL_EPS, ()),
        ("flax", TOLD_WHERE_MADE, ()),
        ("equinox", OF_EQUINOX_MAPPED, ()), ("keras", OF_KERAS, ()),
        ("flax", TOLD_WHERE_MADE.replace(" / q.shape[-1] ** 0.5", ""), ("no_scale",)),
        ("equinox", OF_ONE_HEAD.replace(" / q.shape[-1] ** 0.5", ""), ("single_head", "no_scale")),
    ],
    ids=lambda one: str(one)[-60:].replace("\n", " ").strip(),
)  # fmt: skip
def test_a_layer_is_judged(library: str, text: str, names: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
    pytest.importorskip(library, reason=f"{library} is not installed: pip install {library}")
    verdict = verdict_on(text, tmp_path)
    assert verdict.mistakes == names and verdict.is_wrong == bool(names), verdict


def test_keys_that_are_queries_are_not_verified_beside_a_projection_that_is_never_used(tmp_path: Path) -> None:
    pytest.importorskip("flax", reason="flax is not installed: pip install flax")
    verdict = verdict_on(OF_SCALED_QUERIES, tmp_path)
    assert verdict.outcome == "not verified" and "a projection" in str(verdict), verdict


def test_a_layer_of_flax_itself_is_right() -> None:
    linen = pytest.importorskip("flax.linen", reason="flax is not installed: pip install flax")
    assert attn_exp.check(linen.MultiHeadDotProductAttention, quick=True).passed
