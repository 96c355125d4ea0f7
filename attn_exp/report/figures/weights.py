"""The weights of each variant and head."""

from __future__ import annotations

from attn_exp.report.charts.chart import Chart
from attn_exp.report.charts.layout import MapLabels, weight_maps
from attn_exp.report.escapes import label
from attn_exp.report.figures.figure import Figure
from attn_exp.report.sentences import describe_tokens
from attn_exp.report.views import MANY, Views, colours, count_maps
from attn_exp.report.walk import iterate_heads


def wanted(views: Views) -> bool:
    """Return whether there are few heads, and some map has more than one weight; many heads get an overview."""
    return 0 < count_maps(views) <= MANY and any(panel.weights[0].size > 1 for panel in views.panels)


def plan(views: Views, width: float, height: float | None = None) -> Chart:
    problem = views.comparison.problem
    rows, columns = (list(map(label, tokens)) for tokens in (problem.tokens, problem.key_tokens))
    names = MapLabels(rows, columns, describe_tokens(problem).columns)
    return weight_maps(list(iterate_heads(views, views.panels)), names, width, colours(views).power, height)


FIGURE = Figure(
    caption="Weights of each variant and head: queries down, keys across, one colour scale.",
    plan=plan,
    wanted=wanted,
    in_page=False,
    place=20,
)
