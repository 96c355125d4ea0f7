"""The contract of a figure of the report, and its size.

A figure is laid out at the size of paper, then enlarged until its text has the configured size.
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
    from matplotlib.figure import Figure as Drawing  # a page with charts alone does not load Matplotlib


@dataclass(frozen=True)
class Figure:
    """One figure of the report, drawn with Matplotlib (`draw`) or planned as a chart (`plan`).

    `caption`: a sentence below it that says what it shows.
    `draw`: draws it with Matplotlib from the views of a comparison, so many inches wide.
    `wanted`: says whether it applies to a comparison.
    `place`: its place among the others; the smallest comes first.
    `plan`: plans it as a chart, which becomes an SVG without Matplotlib; the height is None unless one is configured.
    `in_page`: whether the page shows it; figures whose content is on the page in another form are left out.
    """

    caption: str
    draw: Callable[[Views, float], Drawing] | None = None
    wanted: Callable[[Views], bool] = lambda _: True
    place: int = 100
    plan: Callable[[Views, float, float | None], Chart] | None = None
    in_page: bool = True


FONT_SIZE = 8
"""Font size of a drawing, in points."""

NARROWEST = 3.0
"""Minimum width of a figure with room for labels, in inches."""


def size(figures: Figures) -> Size:
    said = {field.name: getattr(figures, field.name) for field in fields(Size)}
    return replace(PRESETS[figures.preset], **{name: value for name, value in said.items() if value is not None})


def drawn_width(wanted: Size) -> float:
    """Return the width in inches at which a figure is laid out before it is enlarged."""
    return max(NARROWEST, wanted.width * FONT_SIZE / wanted.font_size)


WIDER = (1.0, 1.2, 1.45, 1.7, 2.0, 2.5, 3.0, 4.0)
"""On a page of a given height, layouts at these multiples of the width are compared, and the one with the largest text
is used."""


def planned(plan: Callable[[float, float | None], Chart], wanted: Size) -> Chart:
    """Return a chart in the configured size: larger text means a larger zoom, as far as the page has room."""
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
