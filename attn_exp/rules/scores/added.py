"""An array of arbitrary numbers that is added to the logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.rules.example import Example
from attn_exp.rules.grid import Grid, as_number_array, broadcast_misfit, take_values
from attn_exp.rules.scores.score import Score


@dataclass(frozen=True, eq=False)
class Added(Score):
    """`logits += values`; `values` broadcasts to `[b h t s]` from the right.

    To hide keys use a mask, not -inf here: 0 times NaN is NaN.
    """

    values: Any

    def __post_init__(self) -> None:
        values = as_number_array(self.values, "values to add")
        if not np.isfinite(values.astype(np.float64)).all():
            raise ValueError("values to add must be finite; to hide keys use mask=array")
        object.__setattr__(self, "values", values)

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        return broadcast_misfit("values", self.values.shape, heads, rows, keys)

    def bias(self, grid: Grid) -> Array:
        return take_values(self.values, grid)


EXAMPLE = Example(
    settings={"values": [[0.5, -1.0], [0.0, 2.0]]},
    given=((1.0, 1.0), (3.0, -2.0)),
    outcome=((1.5, 0.0), (3.0, 0.0)),
    outside="the numbers come from the user, so there is no other source",
)
