"""The way from the input to the output, one picture for each function that the variants compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from attn_exp.config.schema import Size
from attn_exp.report import words
from attn_exp.report.charts.chart import Sheet
from attn_exp.report.charts.svg import sheet_as_svg
from attn_exp.report.figures.figure import FONT_SIZE, Figure, drawn_width
from attn_exp.report.flow import LETTERS, Flow
from attn_exp.report.flow_columns import columns_sheet
from attn_exp.report.flow_columns import least as least_in_columns
from attn_exp.report.flow_sheet import Bands, Measure, Room, bands, least, sheet, wide_sheet
from attn_exp.report.sections.walks import flows
from attn_exp.report.views import Views

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

WIDE = 3.15
"""Inches: how wide one picture is where there is room."""

SMALLEST = 7 / 72
"""Inches: how large letters are at least where all of a figure's are 8 points."""

NEARLY = 0.98
"""So large a part of the smallest letters is enough where a picture leads from left to right."""

LARGEST = 1.6
"""So many times larger letters may be than that, where there is room."""

MOST = 6
"""More functions than these are left out: their ways differ in little."""

NOTES = (300, 200, 140, 100)
"""Pixels: what is done on the way to a stage is shortened to one of these widths, the first that costs no size."""

Pictures = Sequence[tuple[str, Flow]]


class Shown(NamedTuple):
    """A sheet, and how many inches wide it is shown."""

    sheet: Sheet
    inches: float

    @property
    def letters(self) -> float:
        """How large its letters are, in inches."""
        return LETTERS * self.inches / self.sheet.width


def wanted(views: Views) -> bool:
    """A run that computed nothing has no way to show."""
    return any(row.same_as for row in views.comparison.rows)


def shown(views: Views, width: float, height: float | None) -> Shown:
    """Return the pictures, as many side by side as there is room for, or as large as a page of this height allows.

    Where letters would be too small on the page, it is the one with most stages.
    """
    pictures = list(flows(views))
    if height is None:
        side_by_side = max(1, min(len(pictures[:MOST]), int(width / WIDE + 1e-9)))
        one = sheet(pictures[:MOST], side_by_side)
        return Shown(one, min(width, one.width * FONT_SIZE / 72 / LETTERS))  # letters no larger than in other figures
    measure = Measure(views.lettering)
    every = best(pictures[:MOST], width, height, measure)
    if every.letters >= SMALLEST * 0.999 or len(pictures) == 1:
        return every
    title, flow = max(pictures, key=lambda named: len(named[1].boxes))
    others = ", ".join(name for name, _ in pictures if name != title)
    alone = [(f"{title} (not drawn: {others})", flow)]
    return best(alone, width, height, measure)


def best(pictures: Pictures, width: float, height: float, measure: Measure) -> Shown:
    """Return the pictures from left to right where a page is wide enough to read them, else as large as can be."""
    if width > height:
        for stacked, short in product((False, True), repeat=2):
            leading = max(from_left(pictures, width, height, measure, stacked, short), key=lambda one: one.letters)
            if leading.letters >= SMALLEST * NEARLY:
                return leading
    return max(on_page(pictures, width, height, measure), key=lambda one: one.letters)


def on_page(pictures: Pictures, width: float, height: float, measure: Measure) -> Iterator[Shown]:
    """Yield sheets for a page: each picture from above, so many side by side, then each from left to right."""
    for across in range(1, len(pictures) + 1):
        one = sheet(pictures, across)
        yield Shown(one, min(width, height * one.width / one.height, LARGEST * SMALLEST * one.width / LETTERS))
    for longest in NOTES:
        plans = [bands(title, flow, measure, longest) for title, flow in pictures]
        needs = [least(plan) for plan in plans]
        wide, high = max(need.width for need in needs), sum(need.height for need in needs)
        letters = min(LETTERS * width / wide, LETTERS * height / high, LARGEST * SMALLEST)
        yield Shown(wide_sheet(plans, Room(LETTERS * width / letters, LETTERS * height / letters), measure), width)


def from_left(
    pictures: Pictures, width: float, height: float, measure: Measure, stacked: bool, short: bool
) -> Iterator[Shown]:
    """Yield sheets for a page wider than high: each picture in columns from left to right.

    Queries stand below their matrix where they are `stacked`, and the words of the frame may be `short`.
    """
    for longest in NOTES:
        plans = [bands(title, flow, measure, longest, upright=True) for title, flow in pictures]
        plans = [plan._replace(stacked=stacked, several=heads_of(plan) if short else plan.several) for plan in plans]
        needs = [least_in_columns(plan, measure) for plan in plans]
        wide, high = max(need.width for need in needs), sum(need.height for need in needs)
        letters = min(LETTERS * width / wide, LETTERS * height / high, LARGEST * SMALLEST)
        room = Room(LETTERS * width / letters, LETTERS * height / letters)
        yield Shown(columns_sheet(plans, room, measure), width)


def heads_of(plan: Bands) -> str:
    """Return how many heads a picture has, in few words; nothing where it has one."""
    return words.COUNT_HEADS.format(count=max(card.heads for card in plan.chain)) if plan.several and plan.chain else ""


def fill(views: Views, width: float, height: float | None) -> Drawing:
    """Show each stage as a box with its size, and what leads to what."""
    from attn_exp.report.charts.matplotlib_figure import sheet_as_figure  # noqa: PLC0415 - an SVG needs no Matplotlib

    return sheet_as_figure(*shown(views, width, height))


def draw(views: Views, width: float) -> Drawing:
    """Show it as high as it needs."""
    return fill(views, width, None)


def svg(views: Views, wanted: Size) -> bytes:
    """Write it as SVG, as large as it is wanted, without Matplotlib."""
    width = drawn_width(wanted)
    if wanted.height is None:
        one, wide = shown(views, width, None)
        return sheet_as_svg(one, wide * wanted.width / width)
    one, wide = shown(views, width, wanted.height * width / wanted.width)
    return sheet_as_svg(one, wide * wanted.width / width, (wanted.width, wanted.height))


FIGURE = Figure(
    caption=("From the input to the output: each stage with its size, one picture for each function."),
    draw=draw,
    wanted=wanted,
    fill=fill,
    svg=svg,
    in_page=False,
    place=5,
)
