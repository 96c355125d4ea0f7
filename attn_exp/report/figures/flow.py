"""The way from the input to the output, one picture for each function that the variants compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_exp.config.figure_presets import Size
from attn_exp.report.contents import flows
from attn_exp.report.figures._sizes import drawn_width
from attn_exp.report.figures.figure import Figure
from attn_exp.report.flow_shapes import Sheet, as_svg, sheet
from attn_exp.report.views import Views

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

WIDE = 3.15
"""Inches: how wide one picture is where there is room."""

MOST = 6
"""More functions than these are left out: their ways differ in little."""


def wanted(views: Views) -> bool:
    """A run that computed nothing has no way to show."""
    return any(row.same_as for row in views.comparison.rows)


def sheet_in(views: Views, width: float, height: float | None) -> tuple[Sheet, float]:
    """Return the pictures, so many side by side that they are largest, and how many inches wide they are together."""
    pictures = list(flows(views))[:MOST]
    most = len(pictures) if height is not None else max(1, min(len(pictures), int(width / WIDE)))
    fewest = 1 if height is not None else most
    sheets = [sheet(pictures, across) for across in range(fewest, most + 1)]
    return max(((one, inches(one, width, height)) for one in sheets), key=lambda pair: pair[1] / pair[0].width)


def inches(one: Sheet, width: float, height: float | None) -> float:
    """Return how wide a sheet can be; without a height, its letters are no larger than those of other figures."""
    if height is None:
        return min(width, one.width * WIDE / 352)
    return min(width, height * one.width / one.height)


def fill(views: Views, width: float, height: float | None) -> Drawing:
    """Show each stage as a box with its size, and what leads to what."""
    from attn_exp.report.figures._flow_drawing import drawing_of  # noqa: PLC0415 - an SVG needs no Matplotlib

    return drawing_of(*sheet_in(views, width, height))


def draw(views: Views, width: float) -> Drawing:
    """Show it as high as it needs."""
    return fill(views, width, None)


def svg(views: Views, wanted: Size) -> bytes:
    """Write it as SVG, as large as it is wanted, without Matplotlib."""
    width = drawn_width(wanted)
    if wanted.height is None:
        one, wide = sheet_in(views, width, None)
        return as_svg(one, wide * wanted.width / width)
    one, wide = sheet_in(views, width, wanted.height * width / wanted.width)
    return as_svg(one, wide * wanted.width / width, (wanted.width, wanted.height))


FIGURE = Figure(
    caption="From the input to the output: each stage with its size, one picture for each function.",
    draw=draw,
    wanted=wanted,
    fill=fill,
    svg=svg,
    in_page=False,
    place=5,
)
