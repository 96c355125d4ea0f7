"""How few keys count, and how much of the logits masks leave."""

from __future__ import annotations

from functools import partial

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.metric import Metric, NotFormedError, Subject, mean, mean_seen, sees, weights


def sparsity(weights: Array, threshold: float = 1e-3) -> float:
    """Return the share of weights below the threshold."""
    return mean(weights[sees(weights)] < threshold)


def gini(weights: Array) -> Array:
    """Return the Gini index of each row: 0 where all keys share, `1 - 1/s` where one takes all.

    Source: Hurley and Rickard 2009, "Comparing Measures of Sparsity", table II.
    """
    ranked = np.sort(weights, axis=-1)
    count = weights.shape[-1]
    total = ranked.sum(axis=-1)
    lesser = (ranked * (count - np.arange(count) - 0.5)).sum(axis=-1)
    return np.asarray(np.where(total == 0, 0, 1 - 2 * lesser / np.where(total == 0, 1, total) / count))


def hoyer(weights: Array) -> Array:
    """Return `(sqrt(s) - |w|_1 / |w|_2) / (sqrt(s) - 1)` of each row: 0 where all share, 1 where one takes all.

    Source: Hoyer 2004, "Non-negative Matrix Factorization with Sparseness Constraints", section 3.1.
    """
    root, length = np.sqrt(weights.shape[-1]), np.linalg.norm(weights, axis=-1)
    if root == 1:
        return np.ones_like(length)
    return np.asarray((root - weights.sum(axis=-1) / np.where(length == 0, np.inf, length)) / (root - 1))


def keys_for(weights: Array, share: float = 0.9) -> Array:
    """Return how many of its largest weights each row needs to reach a share of its sum."""
    sums = np.cumsum(-np.sort(-weights, axis=-1), axis=-1)
    return np.asarray((sums < share * sums[..., -1:] * (1 - 1e-12)).sum(axis=-1) + (sums[..., -1] > 0))


def parts(subject: Subject) -> Array:
    """Return the weights of a variant `[h t s]`, where none is below 0.

    Raises:
        NotFormedError: some are, as under `normalizer=sum`: how few keys take most of a sum has no answer.
    """
    made = weights(subject)
    if (made < 0).any():
        raise NotFormedError
    return made


def block_emptiness(allowed: Array, size: int = 16) -> float:
    """Return the share of `size x size` blocks of a mask `[t s]` in which no place may attend.

    Source: PyTorch FlexAttention, `BlockMask.sparsity`.
    """
    rows, keys = (range(0, length, size) for length in allowed.shape)
    return float(np.mean([not allowed[row : row + size, key : key + size].any() for row in rows for key in keys]))


metric = partial(Metric, place=8)

METRICS = (
    metric(
        "sparsity",
        lambda subject: sparsity(parts(subject)),
        meaning="weights that are next to nothing",
        unit="of weights < 1e-3",
    ),
    metric(
        "gini",
        lambda subject: mean_seen(gini, parts(subject)),
        meaning="0 where all keys share, near 1 where one takes all",
        source="Hurley and Rickard 2009",
    ),
    metric(
        "hoyer",
        lambda subject: mean_seen(hoyer, parts(subject)),
        meaning="0 where all keys share, 1 where one takes all",
        source="Hoyer 2004, section 3.1",
    ),
    metric(
        "keys_for_90",
        lambda subject: mean_seen(keys_for, parts(subject)),
        meaning="how many keys share nine tenths of a row",
        unit="keys",
    ),
    partial(Metric, place=10)(
        "mask_density",
        lambda subject: subject.allowed().mean(),
        meaning="places where a query may look",
        unit="of places",
    ),
    partial(Metric, place=10)(
        "empty_blocks",
        lambda subject: block_emptiness(np.asarray(subject.allowed().any(axis=0))),
        meaning="blocks in which no query may look",
        unit="of 16 x 16",
        source="PyTorch FlexAttention, BlockMask.sparsity",
    ),
)
