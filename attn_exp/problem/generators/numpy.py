"""NumPy's generators.

- `numpy`: `rng = np.random.default_rng(seed)`.
- `legacy`: the older one, `np.random.seed(seed)`, then `np.random.rand`, `randn`, `randint` and the like.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.problem.generators.generator import Generator, Start


class Numpy:
    """NumPy's PCG64: `rng.uniform` (also `rng.random`), `rng.normal` (also `rng.standard_normal`), `rng.integers`."""

    def __init__(self, start: Start) -> None:
        self.rng: Any = np.random.default_rng(start.seed)

    def uniform(self, shape: Shape, low: float, high: float) -> Array:
        return np.asarray(self.rng.uniform(low, high, shape))

    def normal(self, shape: Shape, mean: float, spread: float) -> Array:
        return np.asarray(self.rng.normal(mean, spread, shape))

    def integers(self, shape: Shape, low: int, high: int) -> Array:
        return np.asarray(self.rng.integers(low, high, shape))


class Legacy(Numpy):
    """NumPy's Mersenne Twister: `np.random.uniform` (also `rand`, `random`), `normal` (also `randn`), `randint`."""

    def __init__(self, start: Start) -> None:
        self.rng = np.random.RandomState(start.seed)

    def integers(self, shape: Shape, low: int, high: int) -> Array:
        return np.asarray(self.rng.randint(low, high, shape))


GENERATORS = {"legacy": Generator(Legacy, most=2**32 - 1), "numpy": Generator(Numpy)}
