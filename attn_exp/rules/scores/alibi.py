"""ALiBi: the farther a key, the less it counts, at a rate of each head's own."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attn_exp.rules.grid import Array, Grid
from attn_exp.rules.scores.score import Score


@dataclass(frozen=True)
class Alibi(Score):
    """`logit_ij -= slope_h |i - j|`, as positions.

    Under the causal mask this is the authors' `slope_h (j - i)`. Without one, libraries differ: some keep the sign, so
    that later keys are favoured; the distance here is symmetric, as in the authors' encoder.

    Source: Press, Smith, Lewis 2022, "Train Short, Test Long: Attention with Linear Biases", section 3.
    """

    relative = True

    def bias(self, grid: Grid) -> Array:
        return np.asarray(-np.array(slopes(grid.heads))[grid.head] * np.abs(grid.query - grid.key))


def slopes(heads: int) -> list[float]:
    """Return one slope per head: `2^(-8 i / heads)` for i from 1 where `heads` is a power of two.

    Any other count takes the slopes of the power of two below it, then every second slope of twice that power. Many
    libraries use the closed formula for every count, and differ from the authors there.

    Source: the authors' `fairseq/models/transformer.py`, `get_slopes`.
    """
    power = 2 ** math.floor(math.log2(heads))
    return [*geometric(power), *geometric(2 * power)[0::2][: heads - power]]


def geometric(count: int) -> list[float]:
    return [2 ** (-8 * (place + 1) / count) for place in range(count)]
