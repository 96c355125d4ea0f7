"""What readers of a comparison want to see, as plain data that every renderer shares."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace

Array = NDArray[Any]

FINE = 32
"""Maps of block means with more rows or columns are coloured by their square roots."""

SAME_WEIGHTS = 1e-12
"""Weights of two variants that differ by no more than this are shown once."""

SWEPT_NUMBERS = 2_000_000
"""How many weights a sweep over the scale may form; longer problems show evenly spaced queries."""


@dataclass(frozen=True)
class Panel:
    """Variants that share their weights `[h t s]`, to be shown once."""

    variants: tuple[str, ...]
    weights: Array

    @property
    def title(self) -> str:
        return " = ".join(self.variants)


@dataclass(frozen=True)
class Sweep:
    """How the mean entropy `[m]` of one panel falls as the multiplier `[m]` of its scores grows, in nats."""

    title: str
    multipliers: Array
    entropy: Array
    own: float
    standard: float


def panels(comparison: Comparison) -> tuple[Panel, ...]:
    """Return the distinct weights of a comparison, in the order of its rows."""
    return gathered((name, each.weights) for name, each in comparison.traces.items() if each.weights is not None)


def coarse(comparison: Comparison) -> tuple[Panel, ...]:
    """Return the distinct heat maps of block means `[h a c]` of variants whose weights are not there."""
    shape = len(comparison.problem.tokens), comparison.problem.keys
    maps = ((name, map_of(trace)) for name, trace in comparison.traces.items() if trace.weights is None)
    return gathered((name, each) for name, each in maps if each is not None and each.shape[-2:] != shape)


def map_of(trace: Trace) -> Array | None:
    return None if trace.summary is None else trace.summary.heat


def gathered(named: Iterable[tuple[str, Array]]) -> tuple[Panel, ...]:
    """Put those together that are the same."""
    found: list[tuple[list[str], Array]] = []
    for name, array in named:
        names = next((names for names, each in found if same(each, array)), None)
        if names is None:
            found.append(([name], array))
        else:
            names.append(name)
    return tuple(Panel(tuple(names), array) for names, array in found)


def same(left: Array, right: Array) -> bool:
    return left.shape == right.shape and bool(np.abs(left - right).max(initial=0) <= SAME_WEIGHTS)


def heads_of(panel: Panel) -> list[tuple[str, Array]]:
    """Return each head's title and weights `[t s]`."""
    count = len(panel.weights)
    titles = [panel.title if count == 1 else f"{panel.title}, head {head + 1}" for head in range(count)]
    return list(zip(titles, panel.weights, strict=True))


def distances(comparison: Comparison) -> tuple[tuple[str, ...], Array]:
    """Return the names of the variants and the matrix of the largest differences between their answers."""
    names = tuple(row.variant for row in comparison.rows)
    matrix = np.zeros((len(names), len(names)))
    for each in comparison.distances:
        pair = names.index(each.variant), names.index(each.other)
        matrix[pair] = matrix[pair[::-1]] = each.difference
    return names, matrix


def sweeps(comparison: Comparison, points: int = 49) -> tuple[Sweep, ...]:
    """Return, for each panel whose scores are known, its entropy over multipliers around `1 / sqrt(d)`."""
    settled = {each.name: each for each in comparison.variants}
    chosen = [
        (panel.title, settled[panel.variants[0]], split)
        for panel in panels(comparison)
        if (split := scores_and_rest(comparison, panel.variants[0])) is not None
    ]
    marks = [mark for _, each, _ in chosen for mark in (each.multiplier, standard_multiplier(comparison, each))]
    marks = [mark for mark in marks if mark > 0] or [1.0]
    multipliers = np.geomspace(min(marks) / 32, max(marks) * 32, points)
    return tuple(
        Sweep(
            title,
            multipliers,
            mean_entropy(*split, multipliers),
            each.multiplier,
            standard_multiplier(comparison, each),
        )
        for title, each, split in chosen
    )


def scores_and_rest(comparison: Comparison, variant: str) -> tuple[Array, Array] | None:
    """Return the scores `[h t s]` and what is added after scaling, -inf where masked.

    None where they were not formed, or where the weights are not `softmax(multiplier * scores + rest)`: a rule that
    bends logits or takes a share of the sum does something else at another multiplier.
    """
    trace = comparison.traces[variant]
    if trace.scores is None or trace.logits is None or trace.masked is None or trace.weights is None:
        return None
    if trace.capped is not None and not np.array_equal(trace.capped, trace.logits):
        return None
    if not np.allclose(softmax(trace.masked), trace.weights, rtol=0, atol=SAME_WEIGHTS):
        return None
    return trace.scores, np.where(np.isneginf(trace.masked), -np.inf, trace.masked - trace.logits)


def standard_multiplier(comparison: Comparison, settled: Settled) -> float:
    """Return `1 / sqrt(d)`, where d is the size of one head's queries."""
    queries = comparison.traces[settled.name].q
    return 1.0 if queries is None else 1 / math.sqrt(queries.shape[-1])


def mean_entropy(scores: Array, rest: Array, multipliers: Array) -> Array:
    """Return the mean entropy of `softmax(m * scores + rest)` for each multiplier m."""
    rows = thinned(scores.shape[1], SWEPT_NUMBERS // max(1, len(multipliers) * scores.shape[0] * scores.shape[2]))
    logits = multipliers[:, None, None, None] * scores[:, rows] + rest[:, rows]
    return np.asarray(entropy(softmax(logits)).mean(axis=(1, 2)))


def thinned(length: int, most: int) -> Array:
    """Return at most `most`, and at least two, evenly spaced places."""
    return np.unique(np.linspace(0, length - 1, min(length, max(2, most))).round().astype(int))


def softmax(logits: Array) -> Array:
    """Return the weights of logits along the last axis; zeros where every logit is -inf."""
    largest = logits.max(axis=-1, keepdims=True)
    powers = np.exp(logits - np.where(np.isfinite(largest), largest, 0))
    total = powers.sum(axis=-1, keepdims=True)
    return np.asarray(powers / np.where(total == 0, 1, total))


def entropy(weights: Array) -> Array:
    """Return the entropy of each row in nats."""
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    return np.asarray(-(weights * logs).sum(axis=-1))


def label(token: str, most: int = 18) -> str:
    """Return a token as a label: on one line, controls escaped, the middle left out where it is long."""
    safe = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in token[:200])
    if len(safe) <= most and len(token) <= 200:
        return safe
    return f"{safe[: most - 6]}…{ending(token)}"


def ending(token: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in token[-5:])
