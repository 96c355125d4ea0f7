"""Sum: each score divided by the sum of all scores, without exponentials, as in introductions to attention."""

from __future__ import annotations

import math

import numpy as np

from attn_exp.arrays import Array, add_up
from attn_exp.rules.example import Example
from attn_exp.rules.normalizers.normalizer import Normalizer, Vector


def sum(masked: Array, extra: Array | None = None) -> Array:  # noqa: A001 - a normalizer has the name of its file
    """Return `l_j / sum_j l_j` along the last axis; a masked key gets 0 and does not count in the sum.

    Negative scores can give weights below 0 or above 1. If the scores of a row sum to exactly 0, its weights are zeros.
    `extra` `[h 1 n]` has n more scores, which count in the sum.

    Source: Raschka 2024, "Build a Large Language Model (From Scratch)", section 3.3.1, the first normalization there.
    """
    scores = np.where(np.isneginf(masked), masked.dtype.type(0), masked)
    total = add_up(scores)
    if extra is not None:
        total = total + add_up(extra)
    return np.where(total == 0, masked.dtype.type(0), scores / np.where(total == 0, 1, total))


def twin(logits: Vector, extras: Vector = ()) -> list[float]:
    """Return `l_j / (sum_j l_j + sum extra)`, with the sum rounded once; zeros if the sum is 0 or overflows."""
    scores = [0.0 if logit == -math.inf else logit for logit in logits]
    try:
        total = math.fsum((*scores, *extras))
    except OverflowError:
        return [0.0] * len(scores)
    return [score / total if total else 0.0 for score in scores]


NORMALIZER = Normalizer(weigh=sum, twin=twin, takes_extra=True, sums_to_one=True, signed=True)

EXAMPLE = Example(
    settings={},
    given=((1.0, 3.0), (-math.inf, 5.0), (3.0, -1.0), (2.0, -2.0), (-math.inf, -math.inf)),
    outcome=((0.25, 0.75), (0.0, 1.0), (1.5, -0.5), (0.0, 0.0), (0.0, 0.0)),
    outside=Example(
        settings={},
        given=((0.9544, 1.4950, 1.4754, 0.8434, 0.7070, 1.0865),),
        outcome=((0.1455, 0.2278, 0.2249, 0.1285, 0.1077, 0.1656),),
        decimals=4,
        source="Raschka, LLMs-from-scratch, ch03: attn_weights_2_tmp, computed from attn_scores_2",
    ),
)
