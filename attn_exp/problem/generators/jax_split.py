"""JAX's generator, the keys made all at once: `k1, k2, k3 = jax.random.split(jax.random.key(seed), 3)`."""

from __future__ import annotations

from attn_exp.arrays import Array
from attn_exp.problem.generators.generator import Generator, Start
from attn_exp.problem.generators.jax import LEAST, MOST, Jax, fold_in


class Split(Jax):
    """Draws the first array with the first of the keys, the second with the second.

    How many keys there are does not matter: the i-th of any number of them is `fold_in(key, i)`.
    """

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self.drawn = 0

    def next_key(self) -> Array:
        place, self.drawn = self.drawn, self.drawn + 1
        return fold_in(self.key, place)


GENERATOR = Generator(Split, LEAST, MOST)
