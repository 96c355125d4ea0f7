"""How the weights sharpen as the multiplier of the scores grows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attn_exp.experiment.sharpness import Curve, curves
from attn_exp.report.charts.chart import COLOURS, MARKERS, NARROW, Axis, Chart, Stroke, number_ticks, power_ticks
from attn_exp.report.figures._layouts import below_legend, beyond, inside
from attn_exp.report.figures.figure import Figure
from attn_exp.report.views import Views


def wanted(views: Views) -> bool:
    """Only a softmax of scores can be computed at another multiplier, and of one key it is always 1."""
    return views.comparison.problem.keys > 1 and any(panel.split is not None for panel in views.panels)


def plan(views: Views, width: float, height: float | None = None) -> Chart:
    """Show how the mean entropy of the weights falls as the multiplier of the scores grows; the run's own is marked."""
    letters = views.lettering.letters
    shown = curves([(letters(panel.title), panel.split) for panel in views.panels if panel.split is not None])
    end = beyond([line(curve, place) for place, curve in enumerate(shown)])
    strokes = [stroke for place, curve in enumerate(shown) for stroke in of_curve(curve, place, end)]
    box = inside(len(shown), 0.42 if width > NARROW else 0.56, width, height)
    between = " " if width > NARROW else "\n"
    name = f"multiplier of the scores{between}(dotted: 1/sqrt(d); marked: this run)"
    first, last = shown[0].multipliers[[0, -1]].tolist()
    margin = (last / first) ** 0.05
    low, high = first / margin, last * margin
    x = Axis(low, high, power_ticks(low, high, box.width), name, log=True)
    y = Axis(0.0, end, number_ticks(0.0, end, box.height), "mean entropy (nats)")
    return below_legend(strokes, x, y, box, width, views.lettering)


def line(curve: Curve, place: int) -> Stroke:
    """Return the line of one curve."""
    return Stroke(curve.multipliers, curve.entropy, COLOURS[place % len(COLOURS)], 1.4, label=curve.title)


def of_curve(curve: Curve, place: int, end: float) -> Iterator[Stroke]:
    """Yield the line of one curve, the usual multiplier as a dotted line up to `end`, and the run's own as a mark."""
    colour = COLOURS[place % len(COLOURS)]
    yield line(curve, place)
    yield Stroke(np.full(2, curve.standard), np.array([0.0, end]), colour, 0.7, dotted=True)
    if curve.own > 0:
        height = np.interp([curve.own], curve.multipliers, curve.entropy)
        yield Stroke(np.array([curve.own]), height, colour, mark=MARKERS[place % len(MARKERS)])


FIGURE = Figure(
    caption=("How the weights sharpen as the multiplier of the scores grows: mean entropy, with 1/sqrt(d) dotted."),
    plan=plan,
    wanted=wanted,
    place=50,
)
