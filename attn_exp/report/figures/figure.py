"""What a figure of the report is, and how large it is drawn.

It is drawn as large as on paper, then shown as many times larger as its text has to be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from attn_exp.config.schema import PRESETS, Figures, Size
from attn_exp.report.charts.chart import Chart
from attn_exp.report.views import Views

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing  # a page of charts alone waits for no Matplotlib


@dataclass(frozen=True)
class Figure:
    """One figure of the report, drawn with Matplotlib or planned as a chart: one of the two is given.

    `caption`: what it shows, in a sentence that stands below it.
    `draw`: makes it with Matplotlib from the views of a comparison, so many inches wide.
    `wanted`: says whether a comparison has something to show in it.
    `place`: where it stands among the others; the smallest comes first.
    `plan`: makes it as a chart, which becomes an SVG without Matplotlib; a height is None where nobody asked for one.
    `in_page`: whether the page shows it; what stands there in another way is not shown twice.
    """

    caption: str
    draw: Callable[[Views, float], Drawing] | None = None
    wanted: Callable[[Views], bool] = lambda _: True
    place: int = 100
    plan: Callable[[Views, float, float | None], Chart] | None = None
    in_page: bool = True


FONT_SIZE = 8
"""Points: the size of text in a drawing."""

NARROWEST = 3.0
"""Inches: labels have room in figures from this width on."""


def size(figures: Figures) -> Size:
    """Return how large figures are: what their preset says, or the settings instead."""
    said = {field.name: getattr(figures, field.name) for field in fields(Size)}
    return replace(PRESETS[figures.preset], **{name: value for name, value in said.items() if value is not None})


def drawn_width(wanted: Size) -> float:
    """Return how many inches wide a figure is drawn before it is made larger."""
    return max(NARROWEST, wanted.width * FONT_SIZE / wanted.font_size)


WIDER = (1.0, 1.2, 1.45, 1.7, 2.0, 2.5, 3.0, 4.0)
"""On a page of a given height a chart is laid out so many times wider, to find where its letters are largest."""


def planned(plan: Callable[[float, float | None], Chart], wanted: Size) -> Chart:
    """Return a chart as large as is wanted: larger letters are a larger zoom, as far as the page has room."""
    width = drawn_width(wanted)
    zoom, high = wanted.width / width, math.inf if wanted.height is None else wanted.height

    def enlarged(wider: float) -> Chart:
        chart = plan(wider * width, None if wanted.height is None else wider * high / zoom)
        return chart._replace(
            zoom=min(zoom * FONT_SIZE / chart.letters, wanted.width / chart.width, high / chart.height)
        )

    charts = map(enlarged, WIDER if wanted.height else WIDER[:1])
    best = max(charts, key=lambda chart: chart.zoom * chart.letters)
    return best._replace(page=(wanted.width / best.zoom, high / best.zoom)) if wanted.height else best
