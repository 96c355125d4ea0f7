"""Keys that are filler wherever they stand: what a padding mask becomes once it knows which."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from attn_exp.arrays import Array
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.mask import Mask, Span, bounds, widest


@dataclass(frozen=True)
class Holes(Mask):
    """Every query sees key `j` iff `kept[j]`."""

    kept: tuple[bool, ...]

    def unpadded(self, keys: int) -> int:
        return max((place + 1 for place, kept in enumerate(self.kept[:keys]) if kept), default=0)

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        count = len(self.kept)
        return None if count == keys else f"mask.padding.keys says true or false of {count} keys; there are {keys}"

    def allows(self, grid: Grid) -> Array | bool:
        return np.asarray(self.kept)[grid.key]

    def span(self, batch: int, first: int, last: int, keys: int) -> Span:
        edges = [
            place for place, (one, other) in enumerate(pairwise((False, *self.kept[:keys], False))) if one != other
        ]
        runs = list(zip(edges[::2], edges[1::2], strict=True))
        return bounds((runs[0][0], runs[-1][1]), widest(runs)) if runs else Span(0, 0, 0, 0)

    def looks_ahead(self, offset: Array | int) -> bool:
        return self.unpadded(len(self.kept)) - 1 > int(np.min(offset))
