"""The entropy of each query's weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.spread import rows_are_distributions
from attn_exp.experiment.row import find_settled
from attn_exp.forms.trace import entropy
from attn_exp.report.charts.chart import COLOURS, GREY, LINE, MARKERS, Axis, Chart, Stroke, name_ticks, widest
from attn_exp.report.charts.layout import BESIDE, line_chart
from attn_exp.report.escapes import label, visible
from attn_exp.report.figures.figure import NARROWEST, Figure
from attn_exp.report.views import Panel, Views

MARKED = 200
"""With at most this many queries, each has a mark; with more, they are joined by a line."""

MARKS = 600
"""Maximum number of marks for single heads."""

APART = 0.35
"""Maximum distance between two marks in inches, if no height is given."""


def wanted(views: Views) -> bool:
    """Return whether there are several queries, for a curve, and several keys: with one key, the entropy is 0."""
    return min(len(views.comparison.problem.tokens), views.comparison.problem.keys) > 1 and bool(
        panels_with_entropy(views)
    )


def panels_with_entropy(views: Views) -> list[Panel]:
    """Return the panels whose weights have an entropy: their rows are distributions."""
    comparison = views.comparison
    first_variants = [(panel, panel.variants[0]) for panel in views.panels]
    return [
        panel
        for panel, name in first_variants
        if rows_are_distributions(comparison.traces[name], find_settled(comparison, name).rules)
    ]


def plan(views: Views, width: float, height: float | None = None) -> Chart:
    panels = panels_with_entropy(views)
    if height is None:  # keep a few queries close together
        width = min(width, max(NARROWEST, 1.0 + APART * len(views.comparison.problem.tokens) * len(panels)))
    names = list(map(label, views.comparison.problem.tokens))
    longest_name = widest(names)
    is_turned = longest_name > 0.9 * (width - BESIDE) / len(names)
    counts = np.max([count_visible_keys(views, panel) for panel in panels], axis=0)
    strokes = [
        stroke
        for index, panel in enumerate(panels)
        for stroke in query_strokes(panel, index, 0.6 * ((index + 0.5) / len(panels) - 0.5))
    ]
    highest = 1.08 * float(np.log(counts.max())) or 1.0  # room above the largest entropy, unless that is 0
    x = Axis(-0.5, len(names) - 0.5, name_ticks(names, is_turned, width - BESIDE))
    y = Axis(0.0, highest, name="entropy (nats)")
    name_room = 0.2 + (longest_name if is_turned else LINE)
    return line_chart([*strokes, maximum_entropy(counts)], x, y, name_room, width, height)


def count_visible_keys(views: Views, panel: Panel) -> Array:
    """Return how many keys each query may attend to, `[t]`, in the head where these are most; at least 1."""
    masked = views.comparison.traces[panel.variants[0]].masked
    if masked is None:
        return np.full(panel.weights.shape[1], views.comparison.problem.keys)
    return np.asarray(np.maximum(1, (~np.isneginf(masked)).sum(axis=-1).max(axis=0)))


def maximum_entropy(counts: Array) -> Stroke:
    edges = np.arange(len(counts) + 1) - 0.5
    label = "ln n: uniform over n visible keys" if np.ptp(counts) else f"ln {counts[0]}: uniform"
    return Stroke(edges, np.log([*counts, counts[-1]]), GREY, 0.7, dotted=True, steps=True, label=label)


def query_strokes(panel: Panel, index: int, shift: float) -> Iterator[Stroke]:
    """Yield the marks for the queries of one panel, moved sideways by `shift` so that panels do not hide each other."""
    colour, marker, heads = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)], entropy(panel.weights)
    count = heads.shape[-1]
    queries = np.arange(count) + shift
    size = 3.0 if count <= 16 else 2.0
    if len(heads) > 1 and heads.size <= MARKS:
        yield from (Stroke(queries, head, colour, mark=marker, size=size, opacity=0.3) for head in heads)
    means, title = heads.mean(axis=0), visible(panel.title)
    style = {"mark": marker, "size": 1.5 * size} if count <= MARKED else {"width": 0.8}
    yield Stroke(queries, means, colour, label=title, **style)


FIGURE = Figure(
    caption="Entropy of each query's weights.",
    plan=plan,
    wanted=wanted,
    place=40,
)
