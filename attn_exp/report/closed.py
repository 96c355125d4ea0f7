"""Which weights a mask closes, so that they look masked wherever they are shown."""

from __future__ import annotations

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.variant import Settled
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.mask import AllOf

MOST_PLACES = 1 << 22
"""Of more places no mask is asked, nor one whose code is not at hand: a weight of exactly 0 counts as masked."""


def closed(settled: Settled, weights: Array, side: int | None = None) -> Array | None:
    """Return which of the weights `[h t s]`, or of their first `side` rows and columns, no query may give.

    None where there are no masks. A weight above 0, such as one that a mistake leaks, is shown as what it is.
    """
    masks, offset = settled.rules.masks, settled.rules.offset
    if not masks or np.ndim(offset):
        return None
    from attn_exp.rules.absent import AbsentMask  # noqa: PLC0415 - few runs are shown without the code of their masks

    heads, rows, keys = weights.shape
    shown = weights[:, :side, :side]
    if shown.size > MOST_PLACES or any(isinstance(mask, AbsentMask) for mask in masks):
        return np.asarray(shown == 0)
    row = np.arange(shown.shape[1])[:, None]
    grid = Grid(
        batch=0,
        head=np.arange(heads)[:, None, None],
        row=row,
        query=row + offset,
        key=np.arange(shown.shape[2]),
        heads=heads,
        rows=rows,
        keys=keys,
    )
    return np.asarray(~np.broadcast_to(AllOf(masks).allows(grid), shown.shape) & (shown == 0))
