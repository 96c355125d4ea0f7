"""Functions of JAX whose operations are done in NumPy answer what they answer in JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attn_exp.diagnosis.asking.jaxprs import trace_for_numpy

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
jnp = pytest.importorskip("jax.numpy")


FUNCTIONS = {
    "a softmax": lambda x: jax.nn.softmax(x, -1),
    "products with batches": lambda x: jnp.einsum("bthd,bshd->bhts", *[x.reshape(2, 5, 2, 3)] * 2),
    "products without": lambda x: jnp.einsum("btd,csd->tbcs", x, x),
    "other orders of axes": lambda x: (x.reshape(2, 5, 3, 2, order="F"), x.ravel(order="F"), jnp.moveaxis(x, 1, 2)),
    "a causal mask": lambda x: jnp.where(jnp.tril(jnp.ones((5, 5))) == 0, -jnp.inf, x @ x.mT),
    "fused attention": lambda x: jax.nn.dot_product_attention(*[x[..., None, :]] * 3, is_causal=True),
    "activations": lambda x: (
        jax.nn.gelu(x),
        jax.nn.silu(x),
        jax.nn.relu(x),
        jnp.tanh(x),
        jax.lax.erf(x),
        jax.lax.erf_inv(jnp.tanh(x)),
    ),
    "parts at places": lambda x: (
        jnp.take(x, jnp.array([[2, 0], [1, 1]]), axis=1),
        x[jnp.array([1, 0, 1])],
        x[jnp.array([0, 1]), :, jnp.array([[5], [2]])],
        jnp.take_along_axis(x, jnp.argsort(x, axis=-1), axis=-1),
        jnp.take(x, jnp.array([0, 9]), axis=0, mode="fill", fill_value=7.0),
        jax.vmap(lambda row, place: row[place])(x, jnp.array([3, 1])),
    ),
    "powers of places": lambda x: (
        jnp.power(abs(x), jnp.arange(-3, 3)),
        abs(x) ** jnp.array(2),
    ),
    "padding": lambda x: (
        jnp.pad(x, ((0, 0), (1, 0), (0, 2))),
        jax.lax.pad(x, 0.5, ((0, 0, 0), (-1, 2, 0), (0, -3, 0))),
    ),
    "parts": lambda x: (*jnp.split(x, 2, -1), x[..., 1::2], x[:, ::-1], jnp.roll(x, 1, 1)),
    "copies": lambda x: (jnp.tile(x, (1, 2, 1)), jnp.repeat(x, 2, 1), jnp.stack([x, -x], -1)),
    "norms": lambda x: (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6),
    "powers": lambda x: jnp.abs(x) ** 1.5 + x**2 + x**-1,
    "whole numbers": lambda x: (jnp.arange(-7, 7) // 3, jnp.arange(-7, 7) % 3, x.astype(int), jnp.arange(7) ** 2),
    "places": lambda x: (x[:, jnp.array([1, 0])], jnp.argmax(x, -1), jax.lax.top_k(x, 2), jnp.sort(x, -1)),
    "writing": lambda x: x.at[:, 0].set(1.0),
    "loops": lambda x: (jax.lax.scan(lambda sum_, y: (sum_ + y, sum_ * y), x[0], x), jax.lax.map(jnp.sin, x)),
    "mapped": jax.vmap(lambda y: jax.nn.softmax(y @ y.T) @ y),
    "complex numbers": lambda x: [
        (y.real, y.imag, jnp.conj(y).imag) for y in [jax.lax.complex(x, -x) * jnp.exp(1j * jnp.arange(6.0))[None]]
    ],
    "parts from a place": lambda x: [jax.lax.dynamic_slice(x, (0, at, -9), (2, 3, 2)) for at in (-2, 1, 4)],
    "computed again": jax.checkpoint(lambda x: jnp.sin(jnp.cos(x))),
    "half precision": lambda x: jax.nn.softmax(x.astype(jnp.bfloat16) @ x.astype(jnp.bfloat16).mT * 3 - 1, -1),
    "what is no number": lambda x: (jnp.max(jnp.where(x > 0, jnp.nan, x), -1), jnp.log(x), x / 0, jnp.isfinite(x / 0)),
    "nothing": lambda x: (x[:, :0].sum(1), x[:0]),
    "truth": lambda x: (jnp.any(x > 0, -1) & jnp.all(x < 1, -1), ~(x > 0), jnp.clip(x, -0.5, 0.5)),
    "sums so far": lambda x: (jnp.cumsum(x, 1), jax.lax.cumsum(x, 1, reverse=True), jnp.prod(x, -1)),
    "choices": lambda x: (jnp.select([x > 1, x > 0], [x, 2 * x], 0), jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FUNCTIONS)
def test_operations_are_those_of_jax(name: str) -> None:
    function = FUNCTIONS[name]
    x = np.random.default_rng(3).standard_normal((2, 5, 6)).astype(np.float32)
    mine = jax.tree_util.tree_leaves(trace_for_numpy(function, [x])(x))
    right = jax.tree_util.tree_leaves(function(jnp.asarray(x)))
    assert [(one.shape, one.dtype) for one in mine] == [(one.shape, one.dtype) for one in right]
    for one, other in zip(mine, right, strict=True):
        np.testing.assert_allclose(np.asarray(one, float), np.asarray(other, float), rtol=2e-5, atol=2e-6)


@pytest.mark.long
def test_what_is_drawn_depends_on_the_key_alone() -> None:
    def drawn(key: Any) -> Any:
        return jax.random.normal(key, (400, 500))

    first, second = jax.random.split(jax.random.PRNGKey(5))
    call = trace_for_numpy(drawn, [first])
    one, again, other = call(first), call(first), call(second)
    assert np.array_equal(one, again)
    assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.02
    assert abs(one.mean()) < 0.02
    assert abs(one.std() - 1) < 0.02
