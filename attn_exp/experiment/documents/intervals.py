"""What attention can give when its inputs are known only to within their rounding: interval arithmetic.

A number printed as 0.59 stands for any between 0.585 and 0.595. For inputs anywhere in such a box this finds, for each
number of a stage, the least and the largest value:

- `q = x W + b`: where x and W are rounded, each product moves by at most `|x| r_W + r_x |W| + r_x r_W`.
- `scores_ij = sum_m q_im k_jm`: every entry occurs once in a sum, so each product takes the extreme of its corners.
- `logits = scale * scores`.
- `weights_j = exp(l_j) / sum_i exp(l_i)` rises with its own logit and falls with every other, so it is largest with
  its own logit at the top and the others at the bottom, and least the other way round.
- `context_e = sum_j w_j v_je`: the weights sum to 1. The largest mean starts with every weight at its least and gives
  what is missing to 1 to the largest values first, each up to its own largest weight; the least is that of -v, negated.

Each step is as narrow as its own inputs allow. The steps forget that their inputs hang together (two scores of a query
share its q), so the whole may be wider than need be, never narrower. The ends carry ordinary floating-point rounding,
some 1e-16 relative, far below a printed digit.

Source: Moore, Kearfott, Cloud 2009, "Introduction to Interval Analysis", chapters 2 and 5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array


class Interval(NamedTuple):
    """The least and the largest value of each number, two arrays of one shape."""

    low: Array
    high: Array


def around(centre: Array, radius: Array | float) -> Interval:
    """Return `[centre - radius, centre + radius]`."""
    return Interval(centre - radius, centre + radius)


class Radii(NamedTuple):
    """How far x, a matrix and a bias may lie from the truth."""

    x: float
    matrix: float
    bias: float


def projected(x: Array, matrix: Array, radii: Radii) -> Array:
    """Return how far `x W + b` may lie from the truth: `|x| r_W + r_x |W| + m r_x r_W + r_b`, at most reached."""
    moved = np.abs(x).sum(axis=1, keepdims=True) * radii.matrix + np.abs(matrix).sum(axis=0) * radii.x
    return np.asarray(moved + len(matrix) * radii.x * radii.matrix + radii.bias)


def scores(q: Interval, k: Interval) -> Interval:
    """Return the interval of `q k^T`: `[... t d]`, `[... s d]` to `[... t s]`."""
    corners = np.stack([left[..., :, None, :] * right[..., None, :, :] for left in q for right in k])
    return Interval(corners.min(axis=0).sum(axis=-1), corners.max(axis=0).sum(axis=-1))


def scaled(interval: Interval, factor: float) -> Interval:
    """Return the interval of `factor * x`."""
    ends = (factor * interval.low, factor * interval.high)
    return Interval(np.minimum(*ends), np.maximum(*ends))


def softmax(logits: Interval) -> Interval:
    """Return the interval of the softmax along the last axis `[... s]`."""
    anchor = logits.high.max(axis=-1, keepdims=True)
    low, high = np.exp(logits.low - anchor), np.exp(logits.high - anchor)
    others_low = low.sum(axis=-1, keepdims=True) - low
    others_high = high.sum(axis=-1, keepdims=True) - high
    return Interval(low / (low + others_high), high / (high + others_low))


def mean(weights: Interval, v: Interval) -> Interval:
    """Return the interval of `weights v`, each row of weights summing to 1: `[... t s]`, `[... s e]` to `[... t e]`."""
    return Interval(-largest_mean(weights, -v.low), largest_mean(weights, v.high))


def largest_mean(weights: Interval, v: Array) -> Array:
    """Return the largest `sum_j w_j v_je` over weights within their bounds that sum to 1."""
    order = np.argsort(-v, axis=-2, kind="stable")[..., None, :, :]
    values = np.take_along_axis(v[..., None, :, :], order, axis=-2)
    low, high = (np.take_along_axis(end[..., None], order, axis=-2) for end in weights)
    missing = 1 - low.sum(axis=-2, keepdims=True)
    room = high - low
    given_before = np.cumsum(room, axis=-2) - room
    taken = low + np.clip(missing - given_before, 0, room)
    return np.asarray((taken * values).sum(axis=-2))
