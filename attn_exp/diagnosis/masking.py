"""How a function wants its mask: as booleans, as numbers to add, or as ones and zeros, and with how many axes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from attn_exp.arrays import Array

KINDS = ("booleans", "ones and zeros", "added")
AXES = ("t s", "b 1 t s", "b t s")


@dataclass(frozen=True)
class Masking:
    """One way to write a mask that is True where one may attend.

    `added` is 0 there and -inf elsewhere; `ones and zeros` is 1 and 0 as floats. `axes` are those of a mask that all
    entries and heads share.
    """

    kind: str = "booleans"
    axes: str = "t s"

    def written(self, mask: Array, batch: int) -> Array:
        """Return a mask `[t s]`, or one with more axes, in this way."""
        if mask.ndim == 2 and self.axes != "t s":
            mask = np.repeat(mask[None], batch, axis=0)
            mask = mask[:, None] if self.axes == "b 1 t s" else mask
        if self.kind == "added":
            return np.where(mask, 0.0, -np.inf)
        return mask.astype(np.float64) if self.kind == "ones and zeros" else mask

    def __str__(self) -> str:
        words = {"booleans": "", "added": "masks added", "ones and zeros": "masks of ones and zeros"}[self.kind]
        return f"{words or 'masks'} [{self.axes}]" if self.axes != "t s" else words


MASKINGS = tuple(Masking(kind, axes) for axes, kind in product(AXES, KINDS))
"""Every way, the likeliest first."""
