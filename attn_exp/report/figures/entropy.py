"""The entropy of each query's weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from attn_exp.experiment.metrics.spread import entropy
from attn_exp.experiment.shares import share_out
from attn_exp.experiment.splits import settled_as
from attn_exp.report.drawing import (
    COLOURS,
    LINE,
    MARKERS,
    Array,
    labels,
    legend_above,
    name_axis,
    plot_below_legend,
)
from attn_exp.report.figures.figure import Figure
from attn_exp.report.lettering import drawable, widest
from attn_exp.report.views import Panel, Views

MARKED = 200
"""Up to this many queries are marked one by one; more are a line."""

MARKS = 600
"""So many marks of single heads at most."""


def wanted(views: Views) -> bool:
    """A form that never forms its weights has no entropy of each query."""
    return bool(shown(views))


def shown(views: Views) -> list[Panel]:
    """Return the panels whose rows share out 1; the entropy of others is that of no distribution."""
    comparison = views.comparison
    firsts = [(panel, panel.variants[0]) for panel in views.panels]
    return [panel for panel, name in firsts if share_out(comparison.traces[name], settled_as(comparison, name).rules)]


def fill(views: Views, width: float, height: float | None) -> Drawing:
    """Show the entropy of each query's weights: the mean over heads as a mark, each head as a faint one."""
    names, panels = labels(views.comparison.problem.tokens), shown(views)
    wide = width - 0.7
    slanted = widest(names) > 0.9 * wide / len(names)
    bottom = 0.2 + (widest(names) if slanted else LINE)
    drawing, axes = plot_below_legend(len(panels) + 1, bottom, width, height)
    for place, panel in enumerate(panels):
        mark_queries(axes, panel, place, 0.6 * ((place + 0.5) / len(panels) - 0.5))
    counts = np.max([keys_seen(views, panel) for panel in panels], axis=0)
    mark_most(axes, counts)
    axes.set_ylim(0, 1.08 * float(np.log(counts.max())) or 1.0)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylabel("entropy (nats)")
    name_axis(axes.xaxis, names, slanted, wide)
    legend_above(axes, width)
    return drawing


def draw(views: Views, width: float) -> Drawing:
    """Show it as high as is usual."""
    return fill(views, width, None)


def keys_seen(views: Views, panel: Panel) -> Array:
    """Return how many keys each query `[t]` may see, in the head that sees most; at least 1."""
    masked = views.comparison.traces[panel.variants[0]].masked
    if masked is None:
        return np.full(panel.weights.shape[1], views.comparison.problem.keys)
    return np.asarray(np.maximum(1, (~np.isneginf(masked)).sum(axis=-1).max(axis=0)))


def mark_most(axes: Axes, counts: Array) -> None:
    """Mark the largest entropy that each query could have: equal shares of all keys that it may see."""
    look: dict[str, Any] = {"color": "0.5", "linewidth": 0.7, "linestyle": ":"}
    if counts.min() == counts.max():
        axes.axhline(float(np.log(counts[0])), label=f"ln {counts[0]}: uniform", **look)
    else:
        label = "ln n: uniform over n keys in sight"
        edges = np.arange(len(counts) + 1) - 0.5
        axes.plot(edges, np.log([*counts, counts[-1]]), drawstyle="steps-post", label=label, **look)


def mark_queries(axes: Axes, panel: Panel, place: int, aside: float) -> None:
    """Mark the queries of one panel, so far aside that panels do not hide each other."""
    colour, mark, heads = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)], entropy(panel.weights)
    count = heads.shape[-1]
    queries = np.arange(count) + aside
    small = 3 if count <= 16 else 2
    if len(heads) > 1 and heads.size <= MARKS:
        axes.plot(queries, heads.T, mark, color=colour, alpha=0.3, markersize=small)
    line, size = (mark, 1.5 * small) if count <= MARKED else ("-", 0.0)
    axes.plot(
        queries, heads.mean(axis=0), line, color=colour, label=drawable(panel.title), markersize=size, linewidth=0.8
    )


FIGURE = Figure(
    caption="Entropy of each query's weights.",
    draw=draw,
    fill=fill,
    wanted=wanted,
    place=40,
)
