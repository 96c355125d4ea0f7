"""Functions of JAX, and layers of Flax, Haiku and Equinox: norms, masks, random keys, dropout and configurations."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import attn_exp

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
jnp = pytest.importorskip("jax.numpy")

# Functions are traced anew in each call, and what they keep or ask of values stays as it is


@lru_cache
def causal(length: int) -> Any:
    return jnp.tril(jnp.ones((length, length))) == 1


def with_a_mask_that_is_kept(q: Any, k: Any, v: Any) -> Any:
    scores = q @ jnp.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5
    mask = causal(max(q.shape[-2], k.shape[-2]))[: q.shape[-2], : k.shape[-2]]
    return jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1) @ v


def that_asks_for_values(q: Any, k: Any, v: Any) -> Any:
    scores = q @ jnp.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5
    if float(jnp.abs(scores).max()) > 1e9:
        raise OverflowError("scores are large")
    return jax.nn.softmax(scores, -1) @ v


CALLS = {"count": 0}


def that_counts(q: Any, k: Any, v: Any) -> Any:
    CALLS["count"] += 1
    return jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5, -1) @ v + 0.1 * CALLS["count"]


def test_what_a_function_keeps_or_asks_of_values_stays_as_it_is() -> None:
    assert attn_exp.check(with_a_mask_that_is_kept, "mask=causal", quick=True).passed
    verdict = attn_exp.check(that_asks_for_values, quick=True)
    assert not verdict.is_wrong or verdict.mistakes == (), verdict
    assert attn_exp.check(that_counts, quick=True).is_wrong


def packed_by_head(x: Any, wqkv: Any, wo: Any, num_heads: int) -> Any:
    b, t, _ = x.shape
    q, k, v = jnp.split((x @ wqkv).reshape(b, t, num_heads, -1), 3, axis=-1)
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / jnp.sqrt(k.shape[1])
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v).reshape(b, t, -1) @ wo


def hidden_by_little(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Of -10 next to nothing is left in float32 where few keys are hidden."""
    scores = q @ k.T / jnp.sqrt(q.shape[-1])
    return jax.nn.softmax(jnp.where(mask, scores, -10.0)) @ v


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "names"),
    [
        (packed_by_head, ()),  # how the matrices of a wrong function are packed is not searched for
        (hidden_by_little, ("mask_small_fill",)),
    ],
)  # fmt: skip
def test_functions_of_packed_matrices_and_of_masks_are_named(function: Any, names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert verdict.is_wrong and verdict.mistakes == names, verdict
    if verdict.smallest and "wqkv" in verdict.smallest.python:
        exec(verdict.smallest.python.replace("from test_jax", "from tests.diagnosis.test_jax"))


CROSS = """
import equinox as eqx, jax, jax.numpy as jnp

class Cross(eqx.Module):
    w_q: jax.Array
    w_k: jax.Array
    w_v: jax.Array
    w_o: jax.Array
    heads: int

    def __init__(self, key):
        keys = jax.random.split(key, 4)
        self.w_q, self.w_k, self.w_v, self.w_o = (jax.random.normal(one, (8, 8)) / 3 for one in keys)
        self.heads = 2

    def __call__(self, hidden_states, key_value_states=None, attention_mask=None):
        others = hidden_states if key_value_states is None else key_value_states
        split = lambda rows: rows.reshape(len(rows), self.heads, -1)
        q, k, v = split(hidden_states @ self.w_q), split(others @ self.w_k), split(others @ self.w_v)
        logits = jnp.einsum("thd,shd->hts", q, k) / 2
        weights = jax.nn.softmax(logits if attention_mask is None else logits + attention_mask, -1)
        return jnp.einsum("hts,shd->thd", weights, v).reshape(len(hidden_states), -1) @ self.w_o

def make():
    rows = jax.random.normal(jax.random.PRNGKey(1), (7, 8))
    return Cross(jax.random.PRNGKey(0)), {"hidden_states": rows[:5], "key_value_states": rows}
"""


@pytest.mark.long
def test_inputs_keep_their_order_where_jax_sorts_their_names(tmp_path: Path) -> None:
    pytest.importorskip("equinox", reason="Equinox is not installed: pip install equinox")
    (tmp_path / "cross.py").write_text(CROSS, encoding="utf-8")
    assert attn_exp.check(f"{tmp_path / 'cross.py'}:make").outcome == "right"


# Layers

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
ONE_KEY_FOR_ALL = """
import jax
import jax.numpy as jnp
from flax import nnx

class Layer(nnx.Module):
    def __init__(self, dim: int, num_heads: int, *, rngs: nnx.Rngs):
        nothing = nnx.initializers.zeros_init()
        self.num_heads, self.norm = num_heads, nnx.RMSNorm(dim, rngs=rngs)
        self.to_q = nnx.Linear(dim, dim, rngs=rngs)
        self.to_k, self.to_v = (nnx.Linear(dim, dim // num_heads, rngs=rngs) for _ in range(2))
        self.to_out = nnx.Linear(dim, dim, kernel_init=nothing, bias_init=nothing, rngs=rngs)

    def __call__(self, x, context):
        q = self.to_q(self.norm(x)).reshape(*x.shape[:2], self.num_heads, -1)
        scores = jnp.einsum("bthd,bsd->bhts", q, self.to_k(context)) * q.shape[-1] ** -0.5
        mixed = jnp.einsum("bhts,bsd->bthd", jax.nn.softmax(scores), self.to_v(context))
        return x + self.to_out(mixed.reshape(x.shape))
"""
COMPILED = """
import equinox as eqx
import jax
import jax.numpy as jnp

class Layer(eqx.Module):
    parts: list
    heads: int

    def __init__(self, heads, width, key):
        self.heads = heads
        self.parts = [eqx.nn.Linear(width, width, use_bias=False, key=one) for one in jax.random.split(key, 3)]

    @eqx.filter_jit
    def __call__(self, q, k, v, mask):
        q, k, v = (jax.vmap(part)(x).reshape(len(x), self.heads, -1) for part, x in zip(self.parts, (q, k, v)))
        scores = jnp.einsum("thd,shd->hts", q, k)
        shares = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
        return jnp.einsum("hts,shd->thd", shares, v).reshape(len(q), -1)
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
DROPPED_IN_FLAX = """
import jax
from flax import linen

class Layer(linen.Module):
    features: int
    dropout: float = 0.1

    @linen.compact
    def __call__(self, x, deterministic=True):
        q, k, v = (linen.Dense(self.features, name=name)(x) for name in "qkv")
        weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / self.features ** 0.5)
        return linen.Dropout(self.dropout)(weights, deterministic=SWITCH) @ v
"""
DROPPED_IN_HAIKU = """
import haiku as hk
import jax

class Layer(hk.Module):
    def __init__(self, features, dropout=0.1, name=None):
        super().__init__(name=name)
        self.features, self.rate = features, dropout

    def __call__(self, x, is_training=False):
        q, k, v = (hk.Linear(self.features, name=name)(x) for name in "qkv")
        weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / self.features ** 0.5)
        return (weights if SWITCH else hk.dropout(hk.next_rng_key(), self.rate, weights)) @ v
"""
SCALE = " / q.shape[-1] ** 0.5"


@pytest.mark.long
@pytest.mark.parametrize(
    ("library", "code", "names"),
    [
        ("flax", OF_FLAX, ()), ("flax", OF_NNX, ()), ("flax", ONE_KEY_FOR_ALL, ()), ("flax", TOLD_WHERE_MADE, ()),
        ("flax", TOLD_WHERE_MADE.replace(SCALE, ""), ("no_scale",)), ("equinox", OF_EQUINOX_MAPPED, ()),
        ("equinox", COMPILED, ("no_scale",)), ("equinox", OF_ONE_HEAD.replace(SCALE, ""), ("no_scale",)),
        ("flax", DROPPED_IN_FLAX.replace("SWITCH", "deterministic"), ()),
        ("haiku", DROPPED_IN_HAIKU.replace("SWITCH", "not is_training"), ()),
        ("haiku", DROPPED_IN_HAIKU.replace("SWITCH", "False"), ("dropout_on",)),
    ],
    ids=range(11),
)  # fmt: skip
def test_a_layer_is_judged(library: str, code: str, names: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed: pip install {library}")
    (tmp_path / "layer.py").write_text(code, encoding="utf-8")
    verdict = attn_exp.check(f"{tmp_path / 'layer.py'}:Layer", quick=True)
    assert verdict.mistakes == names and verdict.is_wrong == bool(names), verdict


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "left"),
    [(OF_SCALED_QUERIES, "projection `unused`"), (DROPPED_IN_FLAX.replace("SWITCH", "False"), "in evaluation")],
    ids=["queries alone", "dropout"],
)
def test_what_is_never_used_or_asks_for_random_numbers_is_not_verified(code: str, left: str, tmp_path: Path) -> None:
    pytest.importorskip("flax", reason="flax is not installed: pip install flax")
    (tmp_path / "layer.py").write_text(code, encoding="utf-8")
    verdict = attn_exp.check(f"{tmp_path / 'layer.py'}:Layer", quick=True)
    assert verdict.outcome == "not verified" and left in str(verdict), verdict


@pytest.mark.long
def test_a_layer_of_flax_itself_is_right() -> None:
    linen = pytest.importorskip("flax.linen", reason="flax is not installed: pip install flax")
    assert attn_exp.check(linen.MultiHeadDotProductAttention, quick=True).passed
