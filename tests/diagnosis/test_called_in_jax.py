"""Attention of JAX in the forms that people give it is called and named: modules of each library, and functions with
parameters of any nesting."""

from __future__ import annotations

from pathlib import Path

import pytest

import attn_exp
from attn_exp.experiment.verdict import Verdict

pytest.importorskip("jax", reason="JAX is not installed: pip install jax")

pytestmark = pytest.mark.long

FLAX = """
import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import nnx

class RootedOnce(nnx.Module):
    def __init__(self, n_heads: int):
        self.n_heads = n_heads

    def __call__(self, qkv):
        b, t, wide = qkv.shape
        q, k, v = (one.reshape(b, t, self.n_heads, -1) for one in jnp.split(qkv, 3, axis=-1))
        scores = jnp.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.25
        return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v).reshape(b, t, wide // 3)

class OneKeyForAll(nnx.Module):
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

class Overwritten(nn.Module):
    width: int

    @nn.compact
    def __call__(self, queries, keys, values):
        queries = nn.Dense(self.width)(queries)
        keys = nn.Dense(self.width)(queries)
        values = nn.Dense(self.width)(queries)
        shares = jax.nn.softmax(queries @ keys.swapaxes(1, 2) / jnp.sqrt(self.width), axis=-1)
        return shares @ values


"""

EQUINOX = """
import equinox as eqx
import jax
import jax.numpy as jnp

class Compiled(eqx.Module):
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

FUNCTIONS = """
import jax
import jax.numpy as jnp

HEADS = 4

def turned(params, x, sin, cos):
    b, t, m = x.shape
    cut = lambda name: (x @ params[name]["weight"] + params[name]["bias"]).reshape(b, t, HEADS, m // HEADS)

    def turn(y):
        one, other = jnp.split(y, 2, axis=-1)
        return jnp.concatenate([one * cos - other * sin, other * cos + one * sin], axis=-1)

    q, k, v = turn(cut("q_proj")), turn(cut("k_proj")), cut("v_proj")
    assert cos.ndim == 3
    shares = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / jnp.sqrt(m // HEADS), axis=-1)
    mixed = jnp.einsum("bhts,bshd->bthd", shares, v).reshape(b, t, m)
    return mixed @ params["o_proj"]["weight"] + params["o_proj"]["bias"]

def packed_by_head(x, wqkv, wo, num_heads):
    b, t, _ = x.shape
    q, k, v = jnp.split((x @ wqkv).reshape(b, t, num_heads, -1), 3, axis=-1)
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / jnp.sqrt(k.shape[1])
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v).reshape(b, t, -1) @ wo


def hidden_by_little(q, k, v, mask):
    '''Of -10 next to nothing is left in float32 where few keys are hidden.'''
    scores = q @ k.T / jnp.sqrt(q.shape[-1])
    return jax.nn.softmax(jnp.where(mask, scores, -10.0)) @ v
"""


def checked(tmp_path: Path, code: str, name: str, *words: str) -> Verdict:
    """Return the verdict on a function or a class of a file."""
    file = tmp_path / "of_jax.py"
    file.write_text(code)
    return attn_exp.check(f"{file}:{name}", *words, quick=True)


@pytest.mark.parametrize(
    ("name", "words", "names"),
    [
        ("RootedOnce", "", {"scale_other"}),
        ("OneKeyForAll", "", set()),
    ],
)
def test_modules_of_flax_are_called_and_named(tmp_path: Path, name: str, words: str, names: set[str]) -> None:
    pytest.importorskip("flax", reason="Flax is not installed")
    verdict = checked(tmp_path, FLAX, name, *filter(None, [words]))
    assert set(verdict.mistakes) == names and verdict.passed != bool(names), verdict


def test_keys_that_are_projected_from_the_queries_are_not_verified(tmp_path: Path) -> None:
    pytest.importorskip("flax", reason="Flax is not installed")
    assert checked(tmp_path, FLAX, "Overwritten").outcome == "not verified"


def test_what_a_compiled_method_takes_is_read_behind_its_stars(tmp_path: Path) -> None:
    pytest.importorskip("equinox", reason="Equinox is not installed")
    assert checked(tmp_path, EQUINOX, "Compiled").mistakes == ("no_scale",)


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("turned", set()),
        ("packed_by_head", {"scale_by_sqrt_keys"}),
        ("hidden_by_little", {"mask_small_fill"}),
    ],
)
def test_functions_with_parameters_of_any_nesting_are_called_and_named(
    tmp_path: Path, name: str, names: set[str]
) -> None:  # fmt: skip
    verdict = checked(tmp_path, FUNCTIONS, name)
    assert set(verdict.mistakes) == names and verdict.passed != bool(names), verdict
