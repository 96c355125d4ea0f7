"""The interface of a figure in a report, and its size.

A figure is laid out at its size on paper, then enlarged until its text has the configured size.
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
    from matplotlib.figure import Figure as Drawing  # a page with only charts does not load Matplotlib


@dataclass(frozen=True)
class Figure:
    """One figure of the report, drawn with Matplotlib (`draw`) or planned as a chart (`plan`).

    `caption`: a sentence below the figure that says what it shows.
    `draw`: takes the views of a comparison and a width in inches, and draws the figure with Matplotlib.
    `wanted`: returns whether the figure applies to a comparison.
    `place`: sorts the figures; the smallest comes first.
    `plan`: takes the views, a width in inches, and a height, which is None unless the settings give one. It returns a
        chart, which becomes SVG without Matplotlib.
    `in_page`: whether the page has the figure; figures that repeat what the page shows are left out.
    """

    caption: str
    draw: Callable[[Views, float], Drawing] | None = None
    wanted: Callable[[Views], bool] = lambda _: True
    place: int = 100
    plan: Callable[[Views, float, float | None], Chart] | None = None
    in_page: bool = True


FONT_SIZE = 8
"""Font size of a figure before it is enlarged, in points."""

NARROWEST = 3.0
"""Minimum width of a figure with room for labels, in inches."""


def size(figures: Figures) -> Size:
    settings = {field.name: getattr(figures, field.name) for field in fields(Size)}
    return replace(PRESETS[figures.preset], **{name: value for name, value in settings.items() if value is not None})


def drawn_width(wanted: Size) -> float:
    """Return the width at which a figure is laid out before it is enlarged, in inches."""
    return max(NARROWEST, wanted.width * FONT_SIZE / wanted.font_size)


WIDER = (1.0, 1.2, 1.45, 1.7, 2.0, 2.5, 3.0, 4.0)
"""If the settings give a height, a figure is laid out at each of these multiples of its width. The layout that has the
largest text in the end is used."""


def fit_to_size(plan: Callable[[float, float | None], Chart], wanted: Size) -> Chart:
    """Return the chart that `plan` makes, zoomed so that it and its text have the `wanted` size, as far as possible.

    `plan` takes a width, and a height or None. If no height is wanted, the chart determines it.
    """
    width = drawn_width(wanted)
    zoom, height = wanted.width / width, math.inf if wanted.height is None else wanted.height

    def plan_wider(factor: float) -> Chart:
        chart = plan(factor * width, None if wanted.height is None else factor * height / zoom)
        return chart._replace(
            zoom=min(zoom * FONT_SIZE / chart.font_size, wanted.width / chart.width, height / chart.height)
        )

    charts = map(plan_wider, WIDER if wanted.height else WIDER[:1])
    best = max(charts, key=lambda chart: chart.zoom * chart.font_size)
    return best._replace(page=(wanted.width / best.zoom, height / best.zoom)) if wanted.height else best
