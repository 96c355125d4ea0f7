"""Intervals: no input within the box leaves them, and some come near their ends."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attn_exp.experiment.documents import intervals
from attn_exp.experiment.documents.intervals import Interval

RADIUS = 0.005
SLACK = 1e-12

# The 4x3 example of the qk_transpose document, and values of its size.
Q = np.array([[-0.07, -1.43, -0.21], [0.13, 1.43, 0.9], [0.05, -0.58, -1.57], [-0.84, 0.49, -0.58]])
K = np.array([[-0.11, -0.04, 0.79], [-1.68, -0.42, 0.59], [-0.59, 0.77, -0.67], [0.2, 0.02, 0.16]])
V = np.array([[0.5, -0.14], [0.81, 1.36], [0.1, -0.5], [1.2, 0.3]])
FACTOR = 1 / np.sqrt(3)


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits)
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def boxes() -> dict[str, Interval]:
    q, k, v = (intervals.around(each, RADIUS) for each in (Q, K, V))
    scores = intervals.scores(q, k)
    logits = intervals.scaled(scores, FACTOR)
    weights = intervals.softmax(logits)
    return {"scores": scores, "logits": logits, "weights": weights, "context": intervals.mean(weights, v)}


def drawn(times: int) -> dict[str, NDArray[np.float64]]:
    """Compute attention on inputs anywhere in the box, half of them at its corners, by its definition."""
    stream = np.random.default_rng(0)
    shifts = [stream.uniform(-1, 1, (times, *each.shape)) for each in (Q, K, V)]
    corners = [np.where(np.arange(times)[:, None, None] % 2, np.sign(shift), shift) for shift in shifts]
    q, k, v = (each + RADIUS * corner for each, corner in zip((Q, K, V), corners, strict=True))
    scores = np.einsum("ntd,nsd->nts", q, k)
    weights = softmax(scores * FACTOR)
    return {"scores": scores, "logits": scores * FACTOR, "weights": weights, "context": weights @ v}


def test_nothing_in_the_box_leaves_the_interval_and_some_come_near_its_ends() -> None:
    samples = drawn(40_000)
    for stage, (low, high) in boxes().items():
        least, most = samples[stage].min(axis=0), samples[stage].max(axis=0)
        assert (low <= least + SLACK).all() and (most <= high + SLACK).all()
        covered = (most - least) / (high - low)
        assert covered.min() > {"scores": 0.99, "logits": 0.99, "weights": 0.7, "context": 0.7}[stage]
