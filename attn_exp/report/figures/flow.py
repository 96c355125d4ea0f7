"""The computation from the input to the output, one diagram for each function that the variants compute."""

from __future__ import annotations

from attn_exp.report.charts.chart import Chart, Shape, Text, fit_text
from attn_exp.report.figures.figure import Figure
from attn_exp.report.flow import LETTERS
from attn_exp.report.sections.walks import make_flows
from attn_exp.report.views import Views

WIDE = 3.15
"""The width of one diagram if there is room, in inches."""

MOST = 6
"""Maximum number of diagrams, since more would look much the same."""

TITLE, MARGIN = 24, 2
"""The height of the title above a diagram, and the margin around it, in pixels."""


def wanted(views: Views) -> bool:
    return any(row.same_as for row in views.comparison.rows)


def plan(views: Views, width: float, height: float | None = None) -> Chart:
    flows = list(make_flows(views))[:MOST]
    per_row = max(1, min(len(flows), int(width / WIDE + 1e-9)))
    shapes, top, column_width = list[Shape](), 0.0, flows[0][1].width + 2 * MARGIN
    for start in range(0, len(flows), per_row):
        row = flows[start : start + per_row]
        for column, (title, flow) in enumerate(row):
            left = column * column_width + MARGIN
            shapes.append(Text(left, top + 17, fit_text(title, flow.width / 72, 12), 12))
            shapes += [shape._replace(x=shape.x + left, y=shape.y + top + TITLE) for shape in flow.shapes]
        top += TITLE + max(flow.height for _, flow in row) + MARGIN
    return Chart(column_width * per_row / 72, top / 72, tuple(shapes), font_size=LETTERS)


FIGURE = Figure(
    caption=("From the input to the output: each stage with its size, one diagram for each function."),
    plan=plan,
    wanted=wanted,
    in_page=False,
    place=5,
)
