"""The sharpness of the weights as the multiplier of the scores grows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attn_exp.experiment.metrics.logits import Curve, make_curves
from attn_exp.report.charts.chart import COLOURS, MARKERS, NARROW, Axis, Chart, Stroke, power_ticks
from attn_exp.report.charts.layout import BESIDE, line_chart
from attn_exp.report.escapes import visible
from attn_exp.report.figures.figure import Figure
from attn_exp.report.views import Views


def wanted(views: Views) -> bool:
    """Return whether there are several keys, and weights that are a softmax of scores times a multiplier."""
    return views.comparison.problem.keys > 1 and any(panel.split is not None for panel in views.panels)


def plan(views: Views, width: float, height: float | None = None) -> Chart:
    all_curves = make_curves([(visible(panel.title), panel.split) for panel in views.panels if panel.split is not None])
    highest = 1.05 * max(float(curve.entropy.max()) for curve in all_curves) or 1.0
    strokes = [stroke for index, curve in enumerate(all_curves) for stroke in curve_strokes(curve, index, highest)]
    separator = " " if width > NARROW else "\n"
    name = f"multiplier of the scores{separator}(dotted: 1/sqrt(d); marked: this run)"
    first, last = all_curves[0].multipliers[[0, -1]].tolist()
    margin = (last / first) ** 0.05
    low, high = first / margin, last * margin
    x = Axis(low, high, power_ticks(low, high, width - BESIDE), name, log=True)
    y = Axis(0.0, highest, name="mean entropy (nats)")
    name_room = 0.42 if width > NARROW else 0.56  # for the name of x on one line or two
    return line_chart(strokes, x, y, name_room, width, height)


def curve_strokes(curve: Curve, index: int, highest: float) -> Iterator[Stroke]:
    colour = COLOURS[index % len(COLOURS)]
    yield Stroke(curve.multipliers, curve.entropy, colour, 1.4, label=curve.title)
    yield Stroke(np.full(2, curve.standard), np.array([0.0, highest]), colour, 0.7, dotted=True)
    if curve.own > 0:
        height = np.interp([curve.own], curve.multipliers, curve.entropy)
        yield Stroke(np.array([curve.own]), height, colour, mark=MARKERS[index % len(MARKERS)])


FIGURE = Figure(
    caption=("How the weights sharpen as the multiplier of the scores grows: mean entropy, with 1/sqrt(d) dotted."),
    plan=plan,
    wanted=wanted,
    place=50,
)
