"""The views of a comparison: plain data, computed once, that all renderers share.

`make_views` groups the variants of a `Comparison` by equal weights. A `Panel` is one of these groups, with the weights
of all heads; a `Head` is one of its maps. `colours` chooses one colour scale for all of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.logits import SAME_WEIGHTS, Split, split_weights
from attn_exp.experiment.row import Comparison
from attn_exp.problem.problem import Problem
from attn_exp.report.escapes import label

FINE = 32
"""Maps of block means with more rows or columns than this are shown wider."""

MANY = 8
"""With more heads than this, an overview of small maps is shown."""


class Panel(NamedTuple):
    """Variants with equal weights `[h t s]`, which are shown only once.

    If known and requested, `split` has the scores and biases; the weights are the softmax of their sum.
    """

    variants: tuple[str, ...]
    weights: Array
    split: Split | None = None

    @property
    def title(self) -> str:
        return " = ".join(self.variants)


class Views(NamedTuple):
    """A comparison and its views, in the order of the rows.

    `panels`: the distinct weights.
    `blocks`: the distinct block means of variants that never compute their full weights.
    """

    comparison: Comparison
    panels: tuple[Panel, ...]
    blocks: tuple[Panel, ...]


def make_views(comparison: Comparison, split_up_to: float = np.inf) -> Views:
    """Return the views of a comparison; only panels with at most `split_up_to` weights get a `split`."""
    panels = group_equal(
        (name, trace.weights) for name, trace in comparison.traces.items() if trace.weights is not None
    )
    return Views(
        comparison=comparison,
        panels=tuple(
            Panel(panel.variants, panel.weights, split_weights(comparison, panel.variants[0]))
            if panel.weights.size <= split_up_to
            else panel
            for panel in panels
        ),
        blocks=group_equal(coarse_maps(comparison)),
    )


def coarse_maps(comparison: Comparison) -> Iterable[tuple[str, Array]]:
    """Yield the block means `[h a c]` of each variant without weights, unless each block is a single weight."""
    full_shape = len(comparison.problem.tokens), comparison.problem.keys
    for name, trace in comparison.traces.items():
        means = None if trace.summary is None else trace.summary.heat  # only if the form computed block means
        if trace.weights is None and means is not None and means.shape[-2:] != full_shape:
            yield name, means


def group_equal(named: Iterable[tuple[str, Array]]) -> tuple[Panel, ...]:
    groups: list[tuple[list[str], Array]] = []
    for name, array in named:
        names = next((names for names, first in groups if are_equal_weights(first, array)), None)
        if names is None:
            groups.append(([name], array))
        else:
            names.append(name)
    return tuple(Panel(tuple(names), array) for names, array in groups)


def are_equal_weights(left: Array, right: Array) -> bool:
    """Return whether two arrays differ only by rounding, with NaN in the same places."""
    return left.shape == right.shape and np.allclose(left, right, rtol=0, atol=SAME_WEIGHTS, equal_nan=True)


def count_maps(views: Views) -> int:
    return sum(len(panel.weights) for panel in views.panels)


def largest_weight(matrices: Iterable[Array]) -> float:
    """Return the upper end of a colour scale: the largest finite weight, or 1 if none is above 0.

    Some libraries return NaN for queries that see no key.
    """
    return max((float(matrix.max(initial=0, where=np.isfinite(matrix))) for matrix in matrices), default=0.0) or 1.0


class Colours(NamedTuple):
    """The colour scale for weights in all tables and pictures of a run: no colour at 0, full colour at `top`.

    The strength of a colour is `(weight / top) ** power`: proportional if there are few keys, and steeper if there are
    many, so that small weights are visible.
    """

    top: float
    power: float

    def shares(self, weights: Array) -> Array:
        """Return the colour strength of each weight, from 0 to 1; 0 for NaN and infinity."""
        shares: Array = np.clip(np.nan_to_num(weights / self.top, posinf=0, neginf=0), 0, 1) ** self.power
        return shares


EVEN = 16
"""A uniform weight has at least 1 / 16 of full colour."""


def colours(views: Views) -> Colours:
    """Return the colour scale of a run.

    With n keys, a uniform weight is 1 / n, which is 1 / (n top) of the largest weight. The power raises this to 1 / 16;
    if it is already larger, the power is 1.
    """
    largest = largest_weight(panel.weights for panel in (*views.panels, *views.blocks))
    # the largest weight is n top times a uniform one
    multiple = max(EVEN, views.comparison.problem.keys * largest)
    return Colours(largest, round(math.log(EVEN) / math.log(multiple), 2))


class Head(NamedTuple):
    """The weights `[t s]` of one head, the variants that have them, and the head's number, None if it is the only one.

    `is_masked` marks the masked weights, if they are known.
    """

    variants: str
    number: int | None
    weights: Array
    is_masked: Array | None = None

    @property
    def title(self) -> str:
        if self.number is None:
            return self.variants
        return f"{self.variants}, head {self.number}"


def heads_of(panel: Panel) -> list[Head]:
    is_only = len(panel.weights) == 1
    return [
        Head(panel.title, None if is_only else number, weights) for number, weights in enumerate(panel.weights, start=1)
    ]


def token_labels(problem: Problem) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the labels of the queries and those of the keys; a token that is both has the same label in both."""
    keys = distinct_labels(problem.key_tokens)
    if problem.tokens == problem.key_tokens:
        return keys, keys
    return keys[problem.past :] if problem.past else distinct_labels(problem.tokens), keys


def distinct_labels(tokens: Sequence[str]) -> tuple[str, ...]:
    names = [label(token, 24) for token in tokens]
    counts = Counter(names)
    return tuple(f"{name}#{index + 1}" if counts[name] > 1 else name for index, name in enumerate(names))


MOST_EXACT, MOST_COARSE = 150_000, 300_000
"""A page stores the arrays of a panel as float64 up to the first size, and as float32 up to the second; for larger
arrays, it has pictures and no interactive parts."""


class Shown(NamedTuple):
    """A figure in a report: its address and its caption."""

    source: str
    caption: str


SWEEP_CAPTIONS = {
    "effects": (
        "The effect of each setting, compared seed by seed: mean difference and 95% interval, sorted by explained "
        "variance."
    ),
    "against": "Each variant against the swept setting: mean, and its 95% interval over seeds as a bar.",
    "choices": "Each variant at each value of the setting: mean, and its 95% interval over seeds.",
    "heat": "Means for each pair of values of two swept settings, one panel per variant.",
    "parallel": "Parallel coordinates: one line per combination of the swept settings, coloured by its mean.",
    "heads": "Every head of every layer, one map per pattern: the share of a head's weight that fits the pattern.",
    "spread": (
        "The spread of each variant's numbers over the seeds; quartiles are estimated as "
        "the mean ± 0.674 standard deviations."
    ),
}
"""The caption of each kind of plot of a sweep."""
