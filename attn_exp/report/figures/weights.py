"""The weights of each variant and head."""

from __future__ import annotations

from matplotlib.figure import Figure as Drawing

from attn_exp.report.drawing import labels
from attn_exp.report.figures._maps import Reading, weight_maps
from attn_exp.report.figures.figure import Figure
from attn_exp.report.views import MANY, Views, heads_of, maps_in
from attn_exp.report.whose import axis


def wanted(views: Views) -> bool:
    """A form that never forms its weights has none to show; very many heads have an overview instead."""
    return 0 < maps_in(views) <= MANY


def fill(views: Views, width: float, height: float | None) -> Drawing:
    """Show the weights of each variant and head, queries down, keys across, on one colour scale from zero."""
    problem = views.comparison.problem
    maps = [head for panel in views.panels for head in heads_of(panel)]
    rows, columns = labels(problem.tokens), labels(problem.key_tokens)
    return weight_maps(maps, rows, columns, width, Reading(across=axis(problem)), height)


def draw(views: Views, width: float) -> Drawing:
    """Show them as high as they need."""
    return fill(views, width, None)


FIGURE = Figure(
    caption="Weights of each variant and head: queries down, keys across, one colour scale.",
    draw=draw,
    fill=fill,
    wanted=wanted,
    place=20,
)
