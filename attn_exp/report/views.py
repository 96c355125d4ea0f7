"""The views of a comparison: plain data, computed once, that all renderers share.

`make_views` groups the variants of a `Comparison` by equal weights. A `Panel` is one of these groups with the weights
of all its heads, and a `Head` has the weights of one of them. `colours` chooses one colour scale for all.
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
"""A map of block means is shown wider if it has more rows or columns than this."""

MANY = 8
"""With more heads than this, a report shows an overview with small maps."""


class Panel(NamedTuple):
    """Variants with equal weights `[h t s]`, which are shown only once.

    `split`: the scores and biases, if the weights are a softmax of their sum; None if they are not, or if the split was
        not asked for.
    """

    variants: tuple[str, ...]
    weights: Array
    split: Split | None = None

    @property
    def title(self) -> str:
        return " = ".join(self.variants)


class Views(NamedTuple):
    """A comparison and its panels, in the order of the rows.

    `panels`: all distinct weights.
    `blocks`: all distinct block means, for variants that never compute their full weights.
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

    Weights may be NaN, since some libraries return NaN for queries that see no key.
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
"""If all keys have equal weights, these are shown with at least 1 / 16 of full colour."""


def colours(views: Views) -> Colours:
    """Return the colour scale of a run.

    A weight is uniform if it is 1 / n, where n is the number of keys. Relative to the largest weight, `top`, that is
    1 / (n top). If this is less than 1 / 16, the power raises it to 1 / 16. If not, the power is 1.
    """
    largest = largest_weight(panel.weights for panel in (*views.panels, *views.blocks))
    # the ratio of the largest weight to a uniform weight, or 16 if that is larger
    multiple = max(EVEN, views.comparison.problem.keys * largest)
    return Colours(largest, round(math.log(EVEN) / math.log(multiple), 2))


class Head(NamedTuple):
    """The weights `[t s]` of one head.

    `variants`: the names of the variants that have these weights, as text.
    `number`: the number of the head, from 1; None if it is the only one.
    `is_masked`: which of the weights are masked; None if that is not known.
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
    """Return the labels of the queries and of the keys; if a token is both, its two labels are the same."""
    keys = distinct_labels(problem.key_tokens)
    if problem.tokens == problem.key_tokens:
        return keys, keys
    return keys[problem.past :] if problem.past else distinct_labels(problem.tokens), keys


def distinct_labels(tokens: Sequence[str]) -> tuple[str, ...]:
    """Return a label for each token; equal labels get the position of the token: `the#1`, `the#4`."""
    names = [label(token, 24) for token in tokens]
    counts = Counter(names)
    return tuple(f"{name}#{index + 1}" if counts[name] > 1 else name for index, name in enumerate(names))


MOST_EXACT, MOST_COARSE = 150_000, 300_000
"""Limits on weights per panel. Up to `MOST_EXACT`, a page stores its arrays as float64, and up to `MOST_COARSE` as
float32. With more weights, the page has pictures instead, and nothing interactive."""


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
