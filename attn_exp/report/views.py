"""What readers of a comparison want to see: made once, as plain data that every renderer shares."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.metrics.logits import SAME_WEIGHTS, Split, split
from attn_exp.problem.problem import Problem
from attn_exp.report.escapes import label

FINE = 32
"""Maps of block means with more rows or columns are shown wider."""

MANY = 8
"""More heads than these are shown as an overview of small maps."""


class Panel(NamedTuple):
    """Variants that share their weights `[h t s]`, shown once.

    `split` says what the weights are the softmax of, where that is known and anybody asked for it.
    """

    variants: tuple[str, ...]
    weights: Array
    split: Split | None = None

    @property
    def title(self) -> str:
        """The names of the variants, as an equation."""
        return " = ".join(self.variants)


class Views(NamedTuple):
    """A comparison and what is seen in it.

    `panels` are the distinct weights; `blocks` the distinct means of blocks, of variants whose weights are never whole.
    Both are in the order of the rows.
    """

    comparison: Comparison
    panels: tuple[Panel, ...]
    blocks: tuple[Panel, ...]


def seen(comparison: Comparison, splits_up_to: float = np.inf) -> Views:
    """Return the views of a comparison, with the splits of panels of at most so many numbers."""
    panels = gathered((name, trace.weights) for name, trace in comparison.traces.items() if trace.weights is not None)
    return Views(
        comparison=comparison,
        panels=tuple(
            Panel(panel.variants, panel.weights, split(comparison, panel.variants[0]))
            if panel.weights.size <= splits_up_to
            else panel
            for panel in panels
        ),
        blocks=gathered(coarse_maps(comparison)),
    )


def coarse_maps(comparison: Comparison) -> Iterable[tuple[str, Array]]:
    """Yield the block means `[h a c]` of each variant without weights, unless its blocks are single keys."""
    whole = len(comparison.problem.tokens), comparison.problem.keys
    for name, trace in comparison.traces.items():
        heat = None if trace.summary is None else trace.summary.heat  # where a form was asked for block means
        if trace.weights is None and heat is not None and heat.shape[-2:] != whole:
            yield name, heat


def gathered(named: Iterable[tuple[str, Array]]) -> tuple[Panel, ...]:
    """Put variants together whose arrays are the same."""
    groups: list[tuple[list[str], Array]] = []
    for name, array in named:
        names = next((names for names, first in groups if same(first, array)), None)
        if names is None:
            groups.append(([name], array))
        else:
            names.append(name)
    return tuple(Panel(tuple(names), array) for names, array in groups)


def same(left: Array, right: Array) -> bool:
    """Say whether two arrays differ by rounding alone, with NaN at the same places."""
    return left.shape == right.shape and np.allclose(left, right, rtol=0, atol=SAME_WEIGHTS, equal_nan=True)


def maps_in(views: Views) -> int:
    """Return how many heads the panels have together."""
    return sum(len(panel.weights) for panel in views.panels)


def top(matrices: Iterable[Array]) -> float:
    """Return where the scale of some maps of weights ends: at the largest number of all, 1 where none is above 0.

    Some libraries answer NaN where a query may look nowhere; that is no number.
    """
    return max((float(matrix.max(initial=0, where=np.isfinite(matrix))) for matrix in matrices), default=0.0) or 1.0


class Colours(NamedTuple):
    """How weights are coloured, in all tables and pictures of a run: no colour at 0, the full one at `top`.

    Between them a colour is `(weight / top) ** power`: in step with the weight where there are few keys, and faster
    where there are many, so that small weights are seen.
    """

    top: float
    power: float

    def shares(self, weights: Array) -> Array:
        """Return how strong the colour of each weight is, from 0 to 1; 0 for what is no number."""
        shares: Array = np.clip(np.nan_to_num(weights / self.top, posinf=0, neginf=0), 0, 1) ** self.power
        return shares


EVEN = 16
"""A weight such as all would have that share evenly has at least 1 / 16 of the full colour."""


def colours(views: Views) -> Colours:
    """Return the one scale of colours of a run.

    Of n keys an even weight is 1 / n, and 1 / (n top) of the largest; the power that makes this 1 / 16 is taken, and 1,
    which colours in step, where it is more than that anyway.
    """
    end = top(panel.weights for panel in (*views.panels, *views.blocks))
    apart = max(EVEN, views.comparison.problem.keys * end)
    return Colours(end, round(math.log(EVEN) / math.log(apart), 2))


class Head(NamedTuple):
    """One head's weights `[t s]`: whose they are, and its number, which is None where it is the only one.

    `closed` says which of them a mask hides, where it is known.
    """

    variants: str
    number: int | None
    weights: Array
    closed: Array | None = None

    @property
    def title(self) -> str:
        """The variants and the number, in words."""
        if self.number is None:
            return self.variants
        return f"{self.variants}, head {self.number}"


def heads_of(panel: Panel) -> list[Head]:
    """Return the heads of a panel; for readers they count from 1."""
    alone = len(panel.weights) == 1
    return [
        Head(panel.title, None if alone else number, weights) for number, weights in enumerate(panel.weights, start=1)
    ]


def labels(problem: Problem) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return labels of the queries' tokens and of the keys', a token that is both with one label."""
    keys = distinct(problem.key_tokens)
    if problem.tokens == problem.key_tokens:
        return keys, keys
    return keys[problem.past :] if problem.past else distinct(problem.tokens), keys


def distinct(tokens: Sequence[str]) -> tuple[str, ...]:
    """Return labels that tell equal tokens apart by their place."""
    names = [label(token, 24) for token in tokens]
    often = Counter(names)
    return tuple(f"{name}#{place + 1}" if often[name] > 1 else name for place, name in enumerate(names))


MOST_NUMBERS, MOST_COARSE = 150_000, 300_000
"""A page carries the arrays of a panel as float64 up to so many numbers each, and up to so many as float32; beyond,
what moves is left out."""


class Shown(NamedTuple):
    """A figure in a report: where it is, and the words below it."""

    source: str
    caption: str
