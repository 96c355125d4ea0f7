"""JAX's generator with one key for every array: `jax.random.normal(jax.random.key(seed), shape)`, again and again."""

from __future__ import annotations

from attn_exp.arrays import Array
from attn_exp.problem.generators.generator import Generator
from attn_exp.problem.generators.jax import LEAST, MOST, Jax


class Key(Jax):
    """Draws every array with the first key, as notebooks that forget to split: arrays of one shape are equal."""

    def next_key(self) -> Array:
        return self.key


GENERATOR = Generator(Key, LEAST, MOST)
