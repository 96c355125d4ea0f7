"""Places of the logits, as index arrays that broadcast: what rules speak about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array


@dataclass(frozen=True)
class Grid:
    """The places of a region of the logits `[b h t s]`, as indices that broadcast to it.

    `batch` `[b 1 1 1]`, `head` `[h 1 1]`, `row` `[t 1]` and `key` `[s]` count from 0; plain integers for one
    place. Forms may put the axes in another order, so rules combine these arrays by broadcasting alone.
    `query` is the position of a row among the keys, `row + offset`: it is what causal masks,
    windows and ALiBi compare with `key`. The offset is 0 when the first query stands beside the first key
    (top-left alignment), the number of past keys when decoding with a cache, and `keys - rows` when the last
    query stands beside the last key (bottom-right alignment).

    `heads`, `rows` and `keys` are the sizes of the whole problem, not of the region.
    """

    batch: Array | int
    head: Array | int
    row: Array | int
    query: Array | int
    key: Array | int
    heads: int
    rows: int
    keys: int


def at(values: Array, grid: Grid) -> Array:
    """Return the values of an array `[b h t s]` at the grid's places; missing and single axes serve every index."""
    whole = values.reshape((1,) * (4 - values.ndim) + values.shape)
    indices = (grid.batch, grid.head, grid.row, grid.key)
    taken = tuple(0 if size == 1 else index for size, index in zip(whole.shape, indices, strict=True))
    return np.asarray(whole[taken])
