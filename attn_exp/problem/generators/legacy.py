"""NumPy's older generator: `np.random.seed(seed)`, then `np.random.rand`, `randn`, `randint` and their like."""

from __future__ import annotations

import numpy as np

from attn_exp.arrays import Array
from attn_exp.problem.generators.generator import Generator, Shape, Start


class Legacy:
    """`np.random.uniform` (and `rand`, `random`), `normal` (and `randn`), `randint`, by the Mersenne Twister."""

    def __init__(self, start: Start) -> None:
        self.state = np.random.RandomState(start.seed)

    def uniform(self, shape: Shape, low: float, high: float) -> Array:
        return self.state.uniform(low, high, shape)

    def normal(self, shape: Shape, mean: float, spread: float) -> Array:
        return self.state.normal(mean, spread, shape)

    def integers(self, shape: Shape, low: int, high: int) -> Array:
        return self.state.randint(low, high, shape)


GENERATOR = Generator(Legacy, most=2**32 - 1)
