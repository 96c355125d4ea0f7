"""Softmax: weights are exponentials of the logits divided by their sum."""

from __future__ import annotations

import math

import numpy as np

from attn_exp.arrays import Array, add_up
from attn_exp.rules.example import Example
from attn_exp.rules.normalizers.normalizer import Normalizer, Vector


def softmax(masked: Array, extra: Array | None = None) -> Array:
    """Return `exp(l_j) / sum_j exp(l_j)` along the last axis.

    The largest logit of each row is subtracted first, so that no exponential overflows. `extra` `[h 1 n]` has n more
    logits per head, which count in the sum, but get no weight. A row of -inf gives zeros.
    """
    largest = masked.max(axis=-1, keepdims=True, initial=-np.inf)
    if extra is not None:
        largest = np.maximum(largest, extra.max(axis=-1, keepdims=True))
    anchor = np.where(largest == -np.inf, largest.dtype.type(0), largest)
    powers = np.exp(masked - anchor)
    total = add_up(powers)
    if extra is not None:
        total = total + add_up(np.exp(extra - anchor))
    return np.asarray(powers / np.where(total == 0, total.dtype.type(1), total))


def twin(logits: Vector, extras: Vector = ()) -> list[float]:
    """Return `exp(l_j) / (sum_j exp(l_j) + sum exp(extra))`; zeros if every logit is -inf."""
    largest = max((*logits, *extras))
    if largest == -math.inf:
        return [0.0] * len(logits)
    powers = [math.exp(logit - largest) for logit in logits]
    total = math.fsum((*powers, *(math.exp(extra - largest) for extra in extras)))
    return [power / total for power in powers]


def slope(weights: Array, change: Array) -> Array:
    """Return the change of the weights, `w_j (c_j - sum_k w_k c_k)`, if the logits change by `c_j`."""
    return np.asarray(weights * (change - (weights * change).sum(axis=-1, keepdims=True)))


NORMALIZER = Normalizer(
    weigh=softmax,
    twin=twin,
    slope=slope,
    takes_extra=True,
    sums_to_one=True,
    ignores_shift=True,
    exponential=True,
)

EXAMPLE = Example(
    settings={},
    given=((0.0, 1.0), (-math.inf, 7.0), (-math.inf, -math.inf)),
    outcome=((0.268941421369995, 0.731058578630005), (0.0, 1.0), (0.0, 0.0)),  # 1 / (1 + e) and e / (1 + e)
    outside=Example(
        settings={},
        given=((-2.0, 0.0, 0.5),),
        outcome=((0.0486, 0.3592, 0.5922),),
        decimals=4,
        source="entmax, README: softmax of [-2, 0, 0.5]",
    ),
)
