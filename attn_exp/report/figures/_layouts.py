"""Layouts shared by several figures: maps of weights side by side, and axes below a legend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.comparison import settled_as
from attn_exp.report.charts.chart import (
    LINE,
    NARROW,
    NO_TICKS,
    Axis,
    Box,
    Chart,
    Heat,
    Part,
    Path,
    Plot,
    Rect,
    Stroke,
    Text,
    Ticks,
    name_ticks,
    number_ticks,
    round_places,
    ticks_in,
)
from attn_exp.report.charts.widths import fitted, widest
from attn_exp.report.charts.widths import width as width_of
from attn_exp.report.escapes import visible
from attn_exp.report.views import Head, Panel, Views, heads_of, top
from attn_exp.report.walk import closed_by_mask

COLOURS = "Blues"

GAP, NARROWEST = 0.12, 1.05
"""The gap between two maps, and the minimum width of a map while there is room, in inches."""

BAR = 0.1
"""The width of a colour scale, in inches."""

LONG = 0.5
"""A longer unit is written next to the colour scale and reads upwards, in inches."""

PIECES = 4
"""Maximum number of intervals between the numbers of a colour scale."""

NUMBERS_UP_TO = 8
"""Cells contain their number if a matrix has at most this many rows and columns."""


class Named(NamedTuple):
    """The names of rows and columns, the names of the axes, and the colours and the number format of cells."""

    rows: list[str]
    columns: list[str]
    across: str = "key"
    unit: str = "weight"
    down: str = "query"
    low: float = 0.0
    high: float | None = None
    colours: str = COLOURS
    form: str = ".2f"


def weight_maps(
    maps: Sequence[Head], names: Named, width: float, gamma: float = 1.0, height: float | None = None
) -> Chart:
    """Lay out titled maps side by side, on one colour scale; a given height is filled as far as possible."""
    low, end = names.low, top(head.weights for head in maps) if names.high is None else names.high
    left, below = widest(names.rows) + 0.32, widest(names.columns)
    right = max(0.55, GAP + beside(scale_ticks(low, end)) + (LINE if width_of(names.unit) > LONG else 0))
    ratio = max(0.4, min(2.5, len(names.rows) / len(names.columns)))  # a map is as high as it has rows, within reason
    across, side = arranged(len(maps), width - left - right, ratio, None if height is None else height - 0.22 - below)
    turned, tall = below > 0.9 * side / len(names.columns), side * ratio
    pitch, down = tall + 2 * LINE, -(-len(maps) // across)
    high = down * pitch + 0.22 + (below if turned else LINE)
    parts: list[Part] = []
    for place, head in enumerate(maps):
        line, column = divmod(place, across)
        box = Box(left + column * (side + GAP), line * pitch + 2 * LINE, side, tall)
        rows = name_ticks(names.rows, False, tall) if column == 0 else NO_TICKS
        columns = name_ticks(names.columns, turned, side) if place + across >= len(maps) else NO_TICKS
        form = "" if low else form_of_numbers(head.weights, side / len(names.columns), names.form)
        title = short_title(head, side)
        span = (end - low) or 1.0
        heat = Heat(box, head.weights - low, span, names.colours, gamma, form, title, rows=rows, columns=columns)
        parts.append(heat._replace(closed=head.closed))
    middle = (down - 0.5) * pitch + LINE
    parts.append(Text(7 + 0.9 * width, 72 * middle, names.down, side="center", turned=True))
    parts.append(Text(72 * (left + side / 2), 72 * high - 4, names.across, side="center"))
    bar = Box(left + across * (side + GAP), 2 * LINE, BAR, tall)
    parts += colour_scale(bar, end, gamma, names.unit, right - GAP, low=low, colours=names.colours)
    return Chart(min(width, left + across * (side + GAP) + right), high, tuple(parts))


def arranged(count: int, room: float, ratio: float, height: float | None) -> tuple[int, float]:
    """Return the number of maps per row and the width of each; for a given height, the largest that fits.

    Maps are `ratio` times as high as wide.
    """
    if height is None:
        across = max(1, min(count, 4, int(room / NARROWEST)))
        return across, min(2.4, (room - GAP * (across - 1)) / across)
    sides = [
        (min((room - GAP * (across - 1)) / across, (height / -(-count // across) - 2 * LINE) / ratio), across)
        for across in range(1, count + 1)
    ]
    side, across = max(sides)
    return across, max(0.1, side)


def form_of_numbers(matrix: Array, cell: float, form: str) -> str:
    """Return the format of numbers in cells, `cell` inches wide; empty if they would not fit or are too many."""
    return form if max(matrix.shape) <= NUMBERS_UP_TO and cell > 0.06 * len(format(0.01, form)) else ""


def colour_scale(
    box: Box, end: float, gamma: float, unit: str, room: float = 0.55 - GAP, *, low: float = 0, colours: str = COLOURS
) -> Iterator[Part]:
    """Yield a colour scale from `low` to `end`, with numbers at the right, `room` inches wide in all."""
    ticks = scale_ticks(low, end, ticks_in(box.height))
    span = (end - low) or 1.0
    yield Heat(box, np.linspace(span, 0, 256)[:, None], span, colours, gamma)
    left, top, width, height = (72 * side for side in box)
    if width_of(unit) > LONG:
        yield Text(left + 72 * room - 4, top + height / 2, unit, side="center", turned=True)
    else:
        yield Text(left + 72 * room - 4, top - 6, unit, side="right")
    yield Rect(left, top, width, height, stroke="#000000")
    for place, name in zip(ticks.places, ticks.names, strict=True):
        y = top + height * (1 - (place - low) / span)
        yield Path(f"M{left + width:g} {y:g}l2.5 0", stroke="#000000")
        yield Text(left + width + 6, y + 2.9, name, 7.5)


def scale_ticks(low: float, end: float, most: int = PIECES) -> Ticks:
    places = round_places(low, end, max(2, min(most, PIECES)))
    return Ticks(places, tuple(f"{place:{'.4g' if low else '.2g'}}" for place in places))


def beside(ticks: Ticks) -> float:
    """Return how far the numbers of a colour scale reach from its left edge, in inches."""
    return BAR + 6 / 72 + widest(ticks.names, 7.5)


def heads_in(views: Views, panels: Iterable[Panel]) -> Iterator[Head]:
    for panel in panels:
        shut = closed_in(views, panel)
        for place, head in enumerate(heads_of(panel)):
            closed = None if shut is None else shut[place]
            yield head._replace(variants=visible(head.variants), closed=closed)


def closed_in(views: Views, panel: Panel) -> Array | None:
    """Return which weights `[h t s]` of a panel are masked; None without masks, and for block means."""
    problem = views.comparison.problem
    if panel.weights.shape[1:] != (len(problem.tokens), problem.keys):
        return None
    return closed_by_mask(settled_as(views.comparison, panel.variants[0]), panel.weights)


def short_title(head: Head, width: float) -> str:
    if head.number is None or width_of(head.title) <= width:
        return fitted(head.title, width)
    return f"{fitted(head.variants, width - width_of(f' {head.number}'))} {head.number}"


HIGH, LEAST = 1.85, 1.0
"""The default height of axes, and the minimum, in inches."""

LEFT, BESIDE = 0.55, 0.7
"""The room left of axes, and on both sides together, in inches."""

KEY = 0.4
"""The room of a legend entry besides its text, in inches."""


def line_chart(strokes: Sequence[Stroke], x: Axis, y: Axis, below: float, width: float, height: float | None) -> Chart:
    """Return a chart of strokes between two axes, with a legend above, names below, and numbers along `y`.

    The legend's columns are as wide as they need if all fit side by side; else they share the width equally.
    """
    columns = 2 if width > NARROW else 1
    labels = [stroke.label for stroke in strokes if stroke.label]
    needed = [widest(part) for part in np.array_split(np.array(labels), columns)]
    room = (width - BESIDE) / columns - KEY if sum(needed) + KEY * columns > width - BESIDE else max(needed)
    shown = tuple(stroke._replace(label=fitted(stroke.label, room)) for stroke in strokes)
    above = 0.1 + LINE * -(-len(labels) // columns)
    box = Box(LEFT, above, width - BESIDE, HIGH if height is None else max(LEAST, height - above - below))
    y = y._replace(ticks=number_ticks(y.low, y.high, box.height))
    return Chart(width, above + box.height + below, (Plot(box, shown, x, y, columns),))
