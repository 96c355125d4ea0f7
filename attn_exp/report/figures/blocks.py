"""The mean weight of each block of queries and keys, of variants whose weights are never whole."""

from __future__ import annotations

from matplotlib.figure import Figure as Drawing

from attn_exp.report.figures._maps import Reading, weight_maps
from attn_exp.report.figures.figure import Figure
from attn_exp.report.views import FINE, Views, heads_of
from attn_exp.report.whose import axis


def wanted(views: Views) -> bool:
    """Most variants have their weights whole."""
    return bool(views.blocks)


def fill(views: Views, width: float, height: float | None) -> Drawing:
    """Show the mean weight of each block of queries and keys, named by the number of its first.

    The colours of a large map follow the square root: the first rows of a causal mask have thousands of times
    the weights of the last.
    """
    maps = [head for panel in views.blocks for head in heads_of(panel)]
    summary = views.comparison.traces[views.blocks[0].variants[0]].summary
    assert summary is not None
    problem = views.comparison.problem
    rows = [str(edge + problem.past + 1) for edge in summary.row_edges[:-1]]
    columns = [str(edge + 1) for edge in summary.key_edges[:-1]]
    large = max(len(rows), len(columns)) > FINE
    gamma = 0.5 if large else 1.0
    return weight_maps(maps, rows, columns, width, Reading("mean", gamma, axis(problem)), height)


def draw(views: Views, width: float) -> Drawing:
    """Show them as high as they need."""
    return fill(views, width, None)


FIGURE = Figure(
    caption="Mean weight of each block of queries (down) and keys (across), exact, named by their first token.",
    draw=draw,
    fill=fill,
    wanted=wanted,
    place=10,
)
