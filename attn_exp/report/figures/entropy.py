"""The entropy of each query's weights."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from attn_exp.experiment.metrics.spread import entropy
from attn_exp.report.drawing import COLOURS, LINE, MARKERS, labels, legend_above, name_axis, plot_below_legend
from attn_exp.report.figures.figure import Figure
from attn_exp.report.lettering import drawable, widest
from attn_exp.report.views import Panel, Views

MARKED = 200
"""Up to this many queries are marked one by one, with their heads; more are a line."""


def wanted(views: Views) -> bool:
    """A form that never forms its weights has no entropy of each query."""
    return bool(views.panels)


def draw(views: Views, width: float) -> Drawing:
    """Show the entropy of each query's weights: the mean over heads as a mark, each head as a faint one."""
    names = labels(views.comparison.problem.tokens)
    wide = width - 0.7
    slanted = widest(names) > 0.9 * wide / len(names)
    bottom = 0.2 + (widest(names) if slanted else LINE)
    drawing, axes = plot_below_legend(len(views.panels) + 1, bottom, 1.85, width)
    for place, panel in enumerate(views.panels):
        mark_queries(axes, panel, place, 0.6 * ((place + 0.5) / len(views.panels) - 0.5))
    keys = views.comparison.problem.keys
    ceiling = float(np.log(keys))
    axes.axhline(ceiling, color="0.5", linewidth=0.7, linestyle=":", label=f"ln {keys}: uniform")
    axes.set_ylim(0, 1.08 * ceiling or 1.0)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylabel("entropy (nats)")
    name_axis(axes.xaxis, names, slanted, wide)
    legend_above(axes, width)
    return drawing


def mark_queries(axes: Axes, panel: Panel, place: int, aside: float) -> None:
    """Mark the queries of one panel, so far aside that panels do not hide each other."""
    colour, mark, heads = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)], entropy(panel.weights)
    count = heads.shape[-1]
    queries = np.arange(count) + aside
    small = 3 if count <= 16 else 2
    if len(heads) > 1 and count <= MARKED:
        axes.plot(queries, heads.T, mark, color=colour, alpha=0.3, markersize=small)
    line, size = (mark, 1.5 * small) if count <= MARKED else ("-", 0.0)
    axes.plot(
        queries, heads.mean(axis=0), line, color=colour, label=drawable(panel.title), markersize=size, linewidth=0.8
    )


FIGURE = Figure(
    caption="Entropy of each query's weights.",
    draw=draw,
    wanted=wanted,
    place=40,
)
