"""T5's relative bias: one learned number per head for each bucket of distances."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from attn_exp.arrays import Array, draw
from attn_exp.config.kinds import at_least
from attn_exp.rules.example import Example
from attn_exp.rules.grid import Grid
from attn_exp.rules.scores.score import Score


@dataclass(frozen=True, eq=False)
class T5(Score):
    """`logit_ij += table[bucket(j - i), h]` for a query at position i and key j.

    `table` `[buckets h]` holds the learned numbers. By default, they are drawn from N(0, 1), with the stream `t5` of
    `seed`. T5 itself does not scale its logits: set `scale: false` to reproduce it.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning", section 2.1, and the authors'
    `mesh_tensorflow/transformer/transformer_layers.py`, `_relative_position_bucket`.
    """

    relative = True

    buckets: Annotated[int, at_least(2)] = 32
    max_distance: Annotated[int, at_least(2)] = 128
    bidirectional: bool = True
    seed: Annotated[int, at_least(0, most=None)] = 0
    table: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        least = 4 if self.bidirectional else 2
        if self.buckets < least or self.buckets % 2 or self.max_distance <= self.buckets // least:
            raise ValueError(
                f"t5 buckets={self.buckets}, max_distance={self.max_distance}: expected an even number of "
                f"buckets, at least {least}, and a max_distance above the distances that have their own bucket"
            )

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        shape = None if self.table is None else np.shape(self.table)
        return (
            None
            if shape in (None, (self.buckets, heads))
            else (f"t5: table of shape {list(shape or ())}; expected [{self.buckets}, {heads}] for buckets and heads")
        )

    def bias(self, grid: Grid) -> Array:
        table = draw(self.seed, "t5", "normal", (self.buckets, grid.heads)) if self.table is None else self.table
        buckets = bucket(np.asarray(grid.key - grid.query), self.buckets, self.max_distance, self.bidirectional)
        return np.asarray(np.asarray(table)[buckets, grid.head])


def bucket(relative_position: Array, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> Array:
    """Return the bucket of each relative position `j - i`: exact for short distances, logarithmic for long ones.

    Half of the buckets of a direction hold one distance each; a longer distance n falls into
    `exact + floor(ln(n / exact) / ln(max_distance / exact) * (buckets - exact))`, limited to the last bucket.
    """
    buckets = buckets // 2 if bidirectional else buckets
    offset = np.where(relative_position > 0, buckets, 0) if bidirectional else 0
    distance = np.abs(relative_position) if bidirectional else np.maximum(-relative_position, 0)
    exact = buckets // 2
    share = np.log(np.maximum(distance, exact) / exact) / math.log(max_distance / exact)
    # a power of two lies on the boundary of two buckets; 1e-9 keeps rounding errors from choosing the wrong one
    far = exact + np.floor(share * (buckets - exact) + 1e-9).astype(np.int64)
    return np.asarray(offset + np.where(distance < exact, distance, np.minimum(far, buckets - 1)))


EXAMPLE = Example(
    settings={"buckets": 8, "max_distance": 16, "table": [[number] for number in range(8)]},
    outcome=((0, 5, 6, 6), (1, 0, 5, 6), (2, 1, 0, 5), (2, 2, 1, 0)),
    outside=Example(
        settings={"bidirectional": False, "table": [[number] for number in range(32)]},
        offset=130,
        outcome=((31, 31, 31),),
        source="Raffel et al. 2020, section 2.1: 32 embeddings; all offsets beyond 128 share the last",
    ),
)
