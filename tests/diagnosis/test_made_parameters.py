"""Attention whose parameters something else of its file makes: `params = init_attention(key, 64)`, and then a call.

Each style is a file; a mistake is one piece of its code done otherwise.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import attn_exp
from attn_exp.experiment.verdict import Verdict

NUMPY = """
import numpy as np
from dataclasses import dataclass

def softmax(z, axis=-1):
    e = np.exp(z - z.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)
"""
JAX = """
import jax
import jax.numpy as jnp
from dataclasses import dataclass
from typing import NamedTuple

def normal(key, *shape):
    return jax.random.normal(key, shape) / shape[0] ** 0.5
"""
TORCH = """
import math
import torch
from torch import nn
"""

LIST_WITH_A_COUNT = """
def init_params(d_model, num_heads, seed=0):
    rng = np.random.RandomState(seed)
    return [rng.randn(d_model, d_model) / np.sqrt(d_model) for _ in range(4)], num_heads

def attention(params, x, mask=None):
    (wq, wk, wv, wo), h = params
    d = x.shape[1] // h
    heads = []
    for part in (slice(i * d, (i + 1) * d) for i in range(h)):
        s = (x @ wq[:, part]) @ (x @ wk[:, part]).T / np.sqrt(d)
        s = s if mask is None else s + mask
        heads.append(softmax(s, -1) @ (x @ wv[:, part]))
    return np.concatenate(heads, -1) @ wo
"""
DATACLASS_OF_MATRICES = """
@dataclass
class Weights:
    W_Q: np.ndarray
    W_K: np.ndarray
    W_V: np.ndarray
    W_O: np.ndarray

def init_weights(d: int, n_h: int, d_h: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    return Weights(*(rng.normal(scale=d**-0.5, size=(n_h * d_h, d)) for _ in range(3)),
                   rng.normal(scale=d**-0.5, size=(d, n_h * d_h)))

def positions(length: int, d: int):
    return np.sin(np.arange(length)[:, None] / 100 ** (np.arange(d) / d))

def attention(h_seq, weights, n_h, d_h, causal=True):
    t = len(h_seq)
    q, k, v = (h_seq @ w.T for w in (weights.W_Q, weights.W_K, weights.W_V))
    q, k, v = (a.reshape(t, n_h, d_h).transpose(1, 0, 2) for a in (q, k, v))
    s = q @ k.transpose(0, 2, 1) / np.sqrt(d_h)
    if causal:
        s = np.where(np.tril(np.ones((t, t), bool), 0), s, -1e9)
    return (softmax(s) @ v).transpose(1, 0, 2).reshape(t, -1) @ weights.W_O.T
"""
FILLED_BY_A_METHOD = """
class Attention:
    def __init__(self, n_heads):
        self.n_heads, self.params = n_heads, {}

    def initialize(self, d_model, rng=None):
        rng = rng or np.random.default_rng(0)
        for name in ("Wq", "Wk", "Wv", "Wo"):
            self.params[name] = rng.normal(0, d_model**-0.5, (d_model, d_model))

    def forward(self, x, mask=None):
        b, t, m = x.shape
        q, k, v = (x @ self.params[name] for name in ("Wq", "Wk", "Wv"))
        q, k, v = (a.reshape(b, t, self.n_heads, -1).swapaxes(1, 2) for a in (q, k, v))
        s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        s = s if mask is None else np.where(mask, s, -1e9)
        return (softmax(s) @ v).swapaxes(1, 2).reshape(b, t, m) @ self.params["Wo"]
"""
BUILT_FOR_A_SHAPE = """
class Layer:
    def __init__(self):
        self.params, self.grads = {}, {}

class Attention(Layer):
    def __init__(self, num_heads):
        super().__init__()
        self.num_heads = num_heads

    def build(self, input_shape):
        d = input_shape[-1]
        for n in "qkvo":
            self.params["W" + n] = np.random.randn(d, d) / np.sqrt(d)
            self.params["b" + n] = np.zeros(d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (x @ self.params["W" + n] + self.params["b" + n] for n in "qkv")
        q, k, v = (a.reshape(b, t, self.num_heads, -1).swapaxes(1, 2) for a in (q, k, v))
        y = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
        return y.swapaxes(1, 2).reshape(b, t, d) @ self.params["Wo"] + self.params["bo"]
"""
MODULES_IN_A_DICTIONARY = """
def init_mha(d_model, n_heads):
    assert d_model % n_heads == 0
    return nn.ModuleDict({n: nn.Linear(d_model, d_model) for n in ("Wq", "Wk", "Wv", "Wo")})

def attention(p, q, k, v, n_heads, mask=None):
    b, t, d = q.shape
    cut = lambda name, x: p[name](x).view(b, x.shape[1], n_heads, -1).transpose(1, 2)
    q, k, v = cut("Wq", q), cut("Wk", k), cut("Wv", v)
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = s.masked_fill(mask == 0, -1e9)
    return p["Wo"]((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
"""
A_KEY_CALLED_K = """
def init_dense(k, i, o):
    return {"w": normal(k, i, o), "b": jnp.zeros((o,))}

def linear(p, x):
    return x @ p["w"] + p["b"]

def init_mha(k, d):
    return dict(zip("qkvo", (init_dense(one, d, d) for one in jax.random.split(k, 4))))

def mha(p, x_q, x_kv, heads):
    cut = lambda name, x: linear(p[name], x).reshape(*x.shape[:2], heads, -1)
    q, k, v = cut("q", x_q), cut("k", x_kv), cut("v", x_kv)
    a = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1]), axis=-1)
    return linear(p["o"], jnp.einsum("bhqk,bkhd->bqhd", a, v).reshape(x_q.shape))
"""
INPUTS_IN_A_LIST = """
@jax.tree_util.register_dataclass
@dataclass
class Params:
    q: jax.Array
    k: jax.Array
    v: jax.Array
    o: jax.Array

def create(rng, d_model: int):
    return Params(*(normal(key, d_model, d_model) for key in jax.random.split(rng, 4)))

@jax.jit
def attend(p, inputs, mask=None):
    Q, K, V = inputs
    b, t, e = Q.shape
    q, k, v = Q @ p.q, K @ p.k, V @ p.v
    a = jnp.einsum("btd,bsd->bts", q, k) / jnp.sqrt(e)
    a = a if mask is None else a + mask
    return jnp.einsum("bts,bsd->btd", jax.nn.softmax(a, -1), v) @ p.o
"""
ONE_TEXT_AT_A_TIME = """
def init_linear(key, i, o):
    return dict(w=normal(key, o, i), b=jnp.zeros((o,)))

def linear(p, x):
    return p["w"] @ x + p["b"]

def init_mha(key, *, num_heads, size):
    return [init_linear(one, size, size) for one in jax.random.split(key, 4)]

def mha(params, x, num_heads, mask=None):
    q, k, v = (jax.vmap(linear, (None, 0))(p, x).reshape(len(x), num_heads, -1) for p in params[:3])
    s = jnp.einsum("thd,shd->hts", q, k) / jnp.sqrt(q.shape[-1])
    s = s if mask is None else jnp.where(mask, s, jnp.finfo(s.dtype).min)
    y = jnp.einsum("hts,shd->thd", jax.nn.softmax(s, axis=-1), v)
    return jax.vmap(linear, (None, 0))(params[3], y.reshape(x.shape))
"""
A_CLASS_THAT_RETURNS_THEM = """
class Attention:
    def __init__(self, embed_dim, num_heads):
        self.embed_dim, self.num_heads = embed_dim, num_heads

    def init_weights(self, key):
        e = self.embed_dim
        names = ("W_q", "W_k", "W_v", "W_o")
        return {name: normal(one, e, e) for name, one in zip(names, jax.random.split(key, 4))} | {"b_o": jnp.zeros(e)}

    def forward(self, weights, query, key, value, mask=None):
        cut = lambda x, name: (x @ weights[name]).reshape(*x.shape[:2], self.num_heads, -1).swapaxes(1, 2)
        q, k, v = cut(query, "W_q"), cut(key, "W_k"), cut(value, "W_v")
        s = q @ k.swapaxes(-1, -2) / jnp.sqrt(q.shape[-1])
        s = s if mask is None else jnp.where(mask == 0, -1e9, s)
        w = jax.nn.softmax(s, axis=-1)
        return (w @ v).swapaxes(1, 2).reshape(query.shape) @ weights["W_o"] + weights["b_o"], w
"""
A_NAME_AND_A_CONFIGURATION = """
@dataclass(frozen=True)
class ModelArgs:
    dim: int = 512
    n_heads: int = 8
    n_kv_heads: int = 4

class Attention:
    def __init__(self, cfg: ModelArgs, name: str = "attn"):
        self.cfg, self.name = cfg, name

    def init(self, key):
        c, one = self.cfg, self.cfg.dim // self.cfg.n_heads
        q, k, v, o = jax.random.split(key, 4)
        return {self.name: {"wq": normal(q, c.dim, c.n_heads, one), "wk": normal(k, c.dim, c.n_kv_heads, one),
                            "wv": normal(v, c.dim, c.n_kv_heads, one), "wo": normal(o, c.dim, c.n_heads, one)}}

    def __call__(self, params, x):
        p, shared = params[self.name], self.cfg.n_heads // self.cfg.n_kv_heads
        q, k, v = (jnp.einsum("btm,mhd->bhtd", x, p[name]) for name in ("wq", "wk", "wv"))
        k, v = (jnp.repeat(one, shared, axis=1) for one in (k, v))
        s = jnp.einsum("bhtd,bhsd->bhts", q, k) / q.shape[-1] ** 0.5
        s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:])) == 0, -1e10, s)
        return jnp.einsum("bhts,bhsd,mhd->btm", jax.nn.softmax(s, -1), v, p["wo"])
"""
MODULES_THAT_HOLD_NOTHING = """
class Module:
    def __call__(self, params, *given, **named):
        return self.apply(params, *given, **named)

class Dense(Module):
    def __init__(self, i, o):
        self.i, self.o = i, o

    def init(self, rng):
        return {"w": normal(rng, self.i, self.o)}

    def apply(self, params, x):
        return x @ params["w"]

class Attention(Module):
    def __init__(self, dim, heads=8):
        self.heads, self.qkv, self.out = heads, Dense(dim, 3 * dim), Dense(dim, dim)

    def init(self, rng):
        a, b = jax.random.split(rng)
        return {"qkv": self.qkv.init(a), "out": self.out.init(b)}

    def apply(self, params, x, mask=None, train=False, rng=None):
        b, t, m = x.shape
        q, k, v = self.qkv(params["qkv"], x).reshape(b, t, 3, self.heads, -1).transpose(2, 0, 3, 1, 4)
        s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
        s = s if mask is None else jnp.where(mask, s, -jnp.inf)
        return self.out(params["out"], (jax.nn.softmax(s) @ v).swapaxes(1, 2).reshape(b, t, m))
"""
SPREAD_OVER_THE_ARGUMENTS = """
def init_attention(rng, dim, n_head):
    one, other = jax.random.split(rng)
    return dict(c_attn=dict(w=normal(one, dim, 3 * dim), b=jnp.zeros(3 * dim)),
                c_proj=dict(w=normal(other, dim, dim), b=jnp.zeros(dim)))

def linear(x, w, b):
    return x @ w + b

def attention(x, c_attn, c_proj, n_head):
    cut = lambda part: jnp.stack(jnp.split(part, n_head, -1))
    q, k, v = (cut(part) for part in jnp.split(linear(x, **c_attn), 3, axis=-1))
    y = jax.nn.softmax(q @ k.swapaxes(-1, -2) / jnp.sqrt(q.shape[-1]), -1) @ v
    return linear(jnp.concatenate(list(y), -1), **c_proj)
"""

STYLES = {
    "a list with a count": (NUMPY + LIST_WITH_A_COUNT, "attention", "softmax(s, -1)", "softmax(s, 0)"),
    "a dataclass of matrices": (NUMPY + DATACLASS_OF_MATRICES, "attention", "bool), 0)", "bool), -1)"),
    "filled by a method": (NUMPY + FILLED_BY_A_METHOD, "Attention", " / np.sqrt(q.shape[-1])", ""),
    "built for a shape": (NUMPY + BUILT_FOR_A_SHAPE, "Attention", "y.swapaxes(1, 2)", "y"),
    "modules in a dictionary": (TORCH + MODULES_IN_A_DICTIONARY, "attention", "s = s.masked_fill", "s.masked_fill"),
    "a key called k": (JAX + A_KEY_CALLED_K, "mha", "axis=-1", "axis=1"),
    "inputs in a list": (JAX + INPUTS_IN_A_LIST, "attend", " / jnp.sqrt(e)", " / e"),
    "one text at a time": (JAX + ONE_TEXT_AT_A_TIME, "mha", "jnp.finfo(s.dtype).min", "0.0"),
    "a class that returns them": (JAX + A_CLASS_THAT_RETURNS_THEM, "Attention", 'cut(value, "W_v")',
                                  'cut(value, "W_k")'),
    "a name and a configuration": (JAX + A_NAME_AND_A_CONFIGURATION, "Attention", "jnp.repeat(one, shared, axis=1)",
                                   "jnp.tile(one, (1, shared, 1, 1))"),
    "modules that hold nothing": (JAX + MODULES_THAT_HOLD_NOTHING, "Attention", "q.shape[-1] ** -0.5", "m**-0.5"),
    "spread over the arguments": (JAX + SPREAD_OVER_THE_ARGUMENTS, "attention", ", -1) @ v", ", -1) @ k"),
}  # fmt: skip
"""The code of a style, what is asked in it, and a piece of it with what stands there by mistake."""
MISTAKES = {
    "a list with a count": "softmax_over_queries",
    "a dataclass of matrices": "causal_strict",
    "filled by a method": "no_scale",
    "built for a shape": "heads_merged_wrong",
    "modules in a dictionary": "mask_ignored",
    "a key called k": "softmax_over_heads",
    "inputs in a list": "scale_by_d",
    "one text at a time": "mask_small_fill",
    "a class that returns them": "values_from_keys",
    "a name and a configuration": "kv_heads_tiled",
    "modules that hold nothing": "scale_by_sqrt_d_model",
    "spread over the arguments": "values_from_keys",
}
UNDER = {"a name and a configuration": "mask=causal"}
"""What is right under words that nobody typed."""
QUICK = ("filled by a method", "built for a shape")
SOME = [pytest.param(style, marks=() if style in QUICK else pytest.mark.long) for style in STYLES]


def checked(folder: Path, code: str, name: str) -> Verdict:
    """Return the verdict on a name of a file with this code; without its library the test is left out."""
    for library in ("jax", "torch"):
        if f"import {library}" in code:
            pytest.importorskip(library, reason=f"{library} is not installed: pip install {library}")
    place = folder / "styled.py"
    place.write_text(code, encoding="utf-8")
    return attn_exp.check(f"{place}:{name}")


@pytest.mark.parametrize("style", SOME)
def test_a_layer_is_right_with_the_parameters_that_its_file_makes(style: str, tmp_path: Path) -> None:
    code, name, _, _ = STYLES[style]
    verdict = checked(tmp_path, code, name)
    assert verdict.passed, verdict
    assert verdict.right_under == UNDER.get(style, ""), verdict
    assert verdict.findings[0].said.startswith("with x"), "it is called as a layer, with a sequence for x"


@pytest.mark.parametrize("style", SOME)
def test_a_mistake_beside_parameters_that_its_file_makes_has_its_name(style: str, tmp_path: Path) -> None:
    code, name, piece, otherwise = STYLES[style]
    assert code.count(piece) == 1, "a mistake is made in one place"
    verdict = checked(tmp_path, code.replace(piece, otherwise), name)
    assert not verdict.passed, verdict
    assert verdict.mistakes == (MISTAKES[style],), verdict


@pytest.mark.long
def test_a_table_of_positions_is_not_taken_for_the_parameters(tmp_path: Path) -> None:
    code = NUMPY + DATACLASS_OF_MATRICES.replace("def init_weights", "def weights_for").replace(
        "def positions(length: int, d: int)", "def init_attention(length: int, d: int)"
    )
    verdict = checked(tmp_path, code, "attention")
    assert verdict.passed, verdict
