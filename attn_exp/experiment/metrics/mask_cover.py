"""How much of the logits the mask leaves open."""

from __future__ import annotations

from functools import partial

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.metric import Metric


def block_emptiness(allowed: Array, size: int = 16) -> float:
    """Return the share of `size x size` blocks of a mask `[t s]` in which no place may attend.

    Source: PyTorch FlexAttention, `BlockMask.sparsity`.
    """
    rows, keys = (range(0, length, size) for length in allowed.shape)
    return float(np.mean([not allowed[row : row + size, key : key + size].any() for row in rows for key in keys]))


metric = partial(Metric, place=10)

METRICS = (
    metric(
        "mask_density",
        lambda subject: subject.allowed().mean(),
        meaning="places where a query may look",
        unit="of places",
    ),
    metric(
        "empty_blocks",
        lambda subject: block_emptiness(np.asarray(subject.allowed().any(axis=0))),
        meaning="blocks in which no query may look",
        unit="of 16 x 16",
        source="PyTorch FlexAttention, BlockMask.sparsity",
    ),
)
