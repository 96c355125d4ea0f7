"""Sigmoid: the weight of each key is independent of the others."""

from __future__ import annotations

import math

import numpy as np

from attn_exp.arrays import Array
from attn_exp.rules.example import Example
from attn_exp.rules.normalizers.normalizer import Normalizer, Vector


def sigmoid(masked: Array, extra: Array | None = None) -> Array:
    """Return `1 / (1 + exp(-l_j))` of each logit; the sum of a row lies between 0 and its number of keys.

    The paper adds a bias of `-ln s` to every logit; here that is a separate rule, `score=added`. Keys do not compete,
    so an extra logit has no effect.

    Source: Ramapuram et al. 2024, "Theory, Analysis, and Best Practices for Sigmoid Self-Attention", section 2.
    """
    one = masked.dtype.type(1)
    powers = np.exp(-np.abs(masked))
    return np.asarray(np.where(masked < 0, powers, one) / (one + powers))


def twin(logits: Vector, extras: Vector = ()) -> list[float]:
    """Return `1 / (1 + exp(-l_j))`, computed without overflow."""
    return [(1 + math.tanh(logit / 2)) / 2 if logit > -30 else math.exp(logit) for logit in logits]


def slope(weights: Array, change: Array) -> Array:
    """Return the change of the weights, `w_j (1 - w_j) c_j`, if the logits change by `c_j`."""
    return np.asarray(weights * (1 - weights) * change)


NORMALIZER = Normalizer(weigh=sigmoid, twin=twin, slope=slope)

EXAMPLE = Example(
    settings={},
    given=((0.0, 1.0, -math.inf),),
    outcome=((0.5, 0.731058578630005, 0.0),),  # e / (1 + e)
    outside=Example(
        settings={},
        given=((-math.inf, -1.5, 0.0, 1.5, math.inf),),
        outcome=((0.0, 0.18242552, 0.5, 0.81757448, 1.0),),
        decimals=8,
        source="SciPy, `scipy.special.expit`, its documentation's example",
    ),
)
