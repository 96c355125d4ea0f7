"""An arbitrary mask, given as an array of booleans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.rules.example import Example
from attn_exp.rules.grid import Grid, as_number_array, broadcast_misfit, take_values
from attn_exp.rules.masks.mask import Mask


@dataclass(frozen=True, eq=False)
class Allowed(Mask):
    """Query `i` sees key `j` iff `values[..., i, j]` is True; `values` broadcasts to `[b h t s]` from the right.

    True = may attend, as in PyTorch's `scaled_dot_product_attention`, ONNX and JAX; PyTorch's `nn.MultiheadAttention`
    uses the opposite polarity. For an additive mask use the score rule `added`.
    """

    values: Any

    def __post_init__(self) -> None:
        values = as_number_array(self.values, "mask values")
        if values.dtype != np.bool_ and not np.isin(values, (0, 1)).all():
            raise ValueError("mask values must be true or false; for an additive mask use score=added")
        object.__setattr__(self, "values", values.astype(np.bool_))

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        return broadcast_misfit("mask", self.values.shape, heads, rows, keys)

    def inverted(self) -> Mask:
        return Allowed(~self.values)

    def allows(self, grid: Grid) -> Array | bool:
        return take_values(self.values, grid)


EXAMPLE = Example(
    settings={"values": [[True, False, True], [False, True, False]]},
    outcome=("█·█", "·█·"),
    outside=Example(
        settings={"values": [[1, 0, 0], [1, 1, 0], [1, 1, 1]]},
        outcome=("█··", "██·", "███"),
        source="PyTorch, `scaled_dot_product_attention`: ones(L, S, dtype=bool).tril(), True takes part",
    ),
)
