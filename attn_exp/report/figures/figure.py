"""What a figure of the report is, and how large it is drawn.

It is drawn as large as on paper, then shown as many times larger as its text has to be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from attn_exp.config.schema import PRESETS, Figures, Size
from attn_exp.report.charts.chart import Chart
from attn_exp.report.views import Views

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing  # a page of charts alone waits for no Matplotlib


def always(views: Views) -> bool:
    """Say of every comparison that it has something to show."""
    return True


@dataclass(frozen=True)
class Figure:
    """One figure of the report, drawn with Matplotlib or planned as a chart: one of the two is given.

    `caption`: what it shows, in a sentence that stands below it.
    `draw`: makes it with Matplotlib from the views of a comparison, so many inches wide.
    `wanted`: says whether a comparison has something to show in it.
    `place`: where it stands among the others; the smallest comes first.
    `fill`: makes it so many inches wide and high, where it can use the height; others are shown smaller, or centred.
    `plan`: makes it as a chart, which becomes an SVG without Matplotlib; a height is None where nobody asked for one.
    `svg`: writes it as SVG by itself, beside what `draw` does for other formats.
    `in_page`: whether the page shows it; what stands there in another way is not shown twice.
    """

    caption: str
    draw: Callable[[Views, float], Drawing] | None = None
    wanted: Callable[[Views], bool] = always
    place: int = 100
    fill: Callable[[Views, float, float], Drawing] | None = None
    plan: Callable[[Views, float, float | None], Chart] | None = None
    svg: Callable[[Views, Size], bytes] | None = None
    in_page: bool = True


FONT_SIZE = 8
"""Points: the size of text in a drawing."""

NARROWEST = 3.0
"""Inches: labels have room in figures from this width on."""

WIDER = (1.0, 1.3, 1.7, 2.2, 3.0)
"""How many times wider a figure is tried that would be too high: with more maps in a line, say, in smaller print."""

Made = TypeVar("Made")


def size(figures: Figures) -> Size:
    """Return how large figures are: what their preset says, or the settings instead."""
    said = {field.name: getattr(figures, field.name) for field in fields(Size)}
    return replace(PRESETS[figures.preset], **{name: value for name, value in said.items() if value is not None})


def drawn_width(wanted: Size) -> float:
    """Return how many inches wide a figure is drawn before it is made larger."""
    return max(NARROWEST, wanted.width * FONT_SIZE / wanted.font_size)


def best_of(
    make: Callable[[float], Made], extent: Callable[[Made], tuple[float, float]], width: float, height: float
) -> Made:
    """Return what fills a page of this shape best, of what is made in several widths."""
    made = []
    for wider in WIDER:
        made.append(make(width * wider))
        if extent(made[-1])[1] <= height * wider:
            break
    return max(made, key=lambda one: min(zooms(extent(one), width, height)))


def zooms(extent: tuple[float, float], width: float, height: float) -> tuple[float, float]:
    """Return how much larger something can be shown in this width, and in this height."""
    return width / extent[0], height / extent[1]


def extent_of(chart: Chart) -> tuple[float, float]:
    """Return the width and the height of a chart."""
    return chart.width, chart.height


class Plan(Protocol):
    """Makes a chart so many inches wide, and in a height if there is one."""

    def __call__(self, width: float, height: float | None, /) -> Chart: ...


def planned(plan: Plan, wanted: Size) -> Chart:
    """Return a chart as large as is wanted: larger letters are a larger zoom."""
    width = drawn_width(wanted)
    if wanted.height is None:
        return plan(width, None)._replace(zoom=wanted.width / width)
    chart = plan(width, wanted.height * width / wanted.width)
    zoom = min(wanted.width / width, *zooms(extent_of(chart), wanted.width, wanted.height))
    return chart._replace(zoom=zoom, page=(wanted.width / zoom, wanted.height / zoom))
