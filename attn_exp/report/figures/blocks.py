"""The mean weight of each block of queries and keys, for variants that never compute their full weights."""

from __future__ import annotations

from attn_exp.report.charts.chart import Chart
from attn_exp.report.charts.layout import MapLabels, weight_maps
from attn_exp.report.figures.figure import Figure
from attn_exp.report.sentences import describe_tokens
from attn_exp.report.views import Views, colours
from attn_exp.report.walk import iterate_heads


def wanted(views: Views) -> bool:
    return bool(views.blocks)


def plan(views: Views, width: float, height: float | None = None) -> Chart:
    summary = views.comparison.traces[views.blocks[0].variants[0]].summary
    assert summary is not None
    problem = views.comparison.problem
    rows = [str(edge + problem.past + 1) for edge in summary.row_edges[:-1]]
    columns = [str(edge + 1) for edge in summary.key_edges[:-1]]
    names = MapLabels(rows, columns, describe_tokens(problem).columns, "mean")
    return weight_maps(list(iterate_heads(views, views.blocks)), names, width, colours(views).power, height)


FIGURE = Figure(
    caption=(
        "Mean weight of each block of queries (down) and keys (across), computed exactly; a "
        "block is named after its first token."
    ),
    plan=plan,
    wanted=wanted,
    place=10,
)
