"""Attention is seen among the operations of a call of JAX as it is among those of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.code.watching_jax import Notes, watched
from attn_exp.diagnosis.inside.cores import Core, cores
from attn_exp.diagnosis.judging.check import check
from attn_exp.experiment.verdict import Verdict
from attn_exp.own_code import find_function

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
jnp: Any = pytest.importorskip("jax.numpy")

RNG = np.random.default_rng(7)
Q, K, V = RNG.standard_normal((3, 2, 5, 3, 4)).astype(np.float32)
"""Queries, keys and values `[b t h d]`."""


def by_heads(array: Any) -> Any:
    return array.swapaxes(1, 2).reshape(6, 5, 4).astype(np.float64)


def in_einsums(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / 2.0), v)


def in_products(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (side.transpose(0, 2, 1, 3) for side in (q * 0.5, k, v))
    scores = jnp.where(jnp.tril(jnp.ones((5, 5))) == 1, q @ k.mT, -1e9)
    powers = jnp.exp(scores - scores.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)


def in_one_word(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.dot_product_attention(q, k, v)


def with_keys(q: Any, k: Any, v: Any) -> Any:
    first, _ = jax.random.split(jax.random.key(3))
    return in_einsums(q, k, v) * jax.random.bernoulli(first, 1.0, v.shape)


def over_queries(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / 2.0, 2), v)


def seen(function: Callable[..., Any], notes: Notes) -> tuple[list[Core], Any]:
    said = watched(function, [(side, True) for side in (Q, K, V)], notes)
    return cores(notes.operations), said


@pytest.mark.parametrize("function", [in_einsums, in_products, in_one_word, with_keys, over_queries])
def test_queries_keys_and_values_are_those_of_the_call(function: Callable[..., Any]) -> None:
    (core,), said = seen(function, Notes({}))
    np.testing.assert_allclose(said, np.asarray(function(Q, K, V)), atol=1e-5)
    for side, array in (("q", Q * (0.5 if function is in_products else 1.0)), ("k", K), ("v", V)):
        np.testing.assert_allclose(getattr(core, side), by_heads(array), atol=1e-6)
    scores = by_heads(Q) @ by_heads(K).swapaxes(1, 2)
    shown = core.logits > -1e4
    np.testing.assert_allclose(core.logits[shown], (scores / 2)[shown], atol=1e-5)
    assert core.weights.dtype == np.float64


def test_what_a_product_returns_can_be_exchanged() -> None:
    (core,), before = seen(in_einsums, Notes({}))
    _, said = seen(in_einsums, Notes({core.at[2]: lambda product: product * 2}))
    np.testing.assert_allclose(said, 2 * before)


LAYER = """
import jax, jax.numpy as jnp
import flax.linen as nn

class Layer(nn.Module):
    dim: int
    heads: int

    @nn.compact
    def __call__(self, x):
        b, t, d = x.shape
        q = nn.Dense(self.dim)(nn.gelu(nn.Dense(self.dim)(x)))
        k, v = (nn.Dense(self.dim)(jnp.tanh(nn.Dense(12)(x))) for _ in range(2))
        q, k, v = (side.reshape(b, t, self.heads, -1) for side in (q, k, v))
        scores = jnp.einsum("bthd,bshd->bhts", q, k){scale}
        return nn.Dense(self.dim)(nn.gelu(jnp.einsum("bhts,bshd->{order}", jax.nn.softmax(scores), v).reshape(b, t, d)))
"""


def verdict_on(folder: Path, **parts: str) -> Verdict:
    """Return what a check says of a layer whose queries, keys and values are made in two steps."""
    (folder / "layer.py").write_text(LAYER.format(**parts), encoding="utf-8")
    return check(find_function(f"{folder / 'layer.py'}:Layer"), Request(), quick=True)


@pytest.mark.long
@pytest.mark.parametrize(
    ("scale", "order", "names"),
    [
        (" / q.shape[-1] ** 0.5", "bthd", ()),
        ("", "bthd", ("no_scale",)),
        (" / q.shape[-1] ** 0.5", "bhtd", ("heads_merged_wrong",)),
    ],
)
def test_a_layer_without_matrices_of_queries_is_judged_inside(
    scale: str, order: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip("flax", reason="Flax is not installed: pip install flax")
    verdict = verdict_on(tmp_path, scale=scale, order=order)
    assert (verdict.passed, verdict.mistakes) == (not names, names), verdict
    assert "seen from inside" in verdict.findings[0].said
