"""Intervals: no input within the box leaves them, and some come near their ends."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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


def test_the_ends_of_scores_are_reached() -> None:
    """The query moves with the sign of the key, the key with the sign of the query, where neither crosses zero."""
    low, high = boxes()["scores"]
    for i, j in itertools.product(range(4), range(4)):
        upper = [
            max((q + a) * (k + b) for a in (-RADIUS, RADIUS) for b in (-RADIUS, RADIUS))
            for q, k in zip(Q[i], K[j], strict=True)
        ]
        lower = [
            min((q + a) * (k + b) for a in (-RADIUS, RADIUS) for b in (-RADIUS, RADIUS))
            for q, k in zip(Q[i], K[j], strict=True)
        ]
        assert high[i, j] == pytest.approx(sum(upper), abs=SLACK)
        assert low[i, j] == pytest.approx(sum(lower), abs=SLACK)


@pytest.mark.long
@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(0, 1)), min_size=1, max_size=5))
def test_the_ends_of_softmax_are_the_extremes_over_all_corners(logits: list[tuple[float, float]]) -> None:
    low, high = (np.array([centre + sign * radius for centre, radius in logits]) for sign in (-1, 1))
    corners = softmax(np.array(list(itertools.product(*zip(low, high, strict=True)))))
    found = intervals.softmax(Interval(low, high))
    np.testing.assert_allclose(found.low, corners.min(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.high, corners.max(axis=0), rtol=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 1), st.floats(0, 0.1), st.floats(-3, 3)), min_size=2, max_size=4))
def test_the_ends_of_the_mean_are_the_extremes_over_all_vertices(keys: list[tuple[float, float, float]]) -> None:
    """A linear function on weights that sum to 1 is extreme where all weights but one are at an end."""
    weight, radius, value = (np.array(column) for column in zip(*keys, strict=True))
    weight = weight / weight.sum()
    low, high = weight - radius, weight + radius
    vertices = []
    for free in range(len(keys)):
        for ends in itertools.product(*zip(np.delete(low, free), np.delete(high, free), strict=True)):
            vertex = np.insert(np.array(ends), free, 1 - sum(ends))
            if low[free] - SLACK <= vertex[free] <= high[free] + SLACK:
                vertices.append(float(vertex @ value))
    v = value[:, None]
    found = intervals.mean(Interval(low[None], high[None]), Interval(v, v))
    assert found.low.item() == pytest.approx(min(vertices), abs=1e-9)
    assert found.high.item() == pytest.approx(max(vertices), abs=1e-9)


def test_a_negative_factor_turns_the_ends_round() -> None:
    low, high = intervals.scaled(Interval(np.array([1.0]), np.array([3.0])), -2)
    assert (low.item(), high.item()) == (-6, -2)


def test_a_box_of_no_size_stays_a_point() -> None:
    q, k, v = (intervals.around(each, 0.0) for each in (Q, K, V))
    weights = intervals.softmax(intervals.scaled(intervals.scores(q, k), -FACTOR))
    expected = softmax(-FACTOR * np.einsum("td,sd->ts", Q, K))
    for end in weights:
        np.testing.assert_allclose(end, expected, rtol=1e-14)
    for end in intervals.mean(weights, v):
        np.testing.assert_allclose(end, expected @ V, rtol=0, atol=1e-14)
