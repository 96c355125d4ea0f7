"""ALiBi: the logit decreases linearly with the distance of the key, with a slope per head."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array
from attn_exp.rules.example import Example
from attn_exp.rules.grid import Grid
from attn_exp.rules.scores.score import Score


@dataclass(frozen=True)
class Alibi(Score):
    """`logit_ij -= slope_h |i - j|` for a query at position i and key j; with `signed`, `logit_ij += slope_h (j - i)`.

    Under the causal mask, the two are equal. Without it, libraries differ. The authors' encoder uses the distance.
    Others keep the sign (`signed=true`). This favours later keys, but in their models the mask hides them.

    Source: Press, Smith, Lewis 2022, "Train Short, Test Long: Attention with Linear Biases", section 3.
    """

    signed: bool = False
    relative = True

    def bias(self, grid: Grid) -> Array:
        distance = grid.query - grid.key
        return np.asarray(-self.rates(grid.heads)[grid.head] * (distance if self.signed else np.abs(distance)))

    def rates(self, heads: int) -> Array:
        return np.array(slopes(heads))


def slopes(heads: int) -> list[float]:
    """Return one slope per head: `2^(-8 i / heads)` for i from 1 if `heads` is a power of two.

    For any other number, the slopes are those for the power of two below it, followed by every second slope for twice
    that power. Many libraries use the formula above for every number, and so differ from the authors.

    Source: the authors' `fairseq/models/transformer.py`, `get_slopes`.
    """
    power = 2 ** math.floor(math.log2(heads))
    return [*geometric(power), *geometric(2 * power)[0::2][: heads - power]]


def geometric(count: int) -> list[float]:
    """Return the slopes for `count` heads, a power of two: `2^(-8 i / count)` for i = 1, ..., `count`."""
    return [2 ** (-8 * (index + 1) / count) for index in range(count)]


EXAMPLE = Example(
    settings={},
    heads=8,
    head=1,
    given=((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 8.0)),
    outcome=((0.0, -0.25, -0.5), (-0.25, 0.0, -0.25), (-0.5, -0.25, 8.0)),
    outside=Example(
        settings={},
        heads=12,
        head=8,
        outcome=((0.0, -0.70710678),),
        decimals=8,
        source="the authors' get_slopes(12): after the 8 slopes of 8 heads, every second one of 16 heads, from 2^-0.5",
    ),
)
