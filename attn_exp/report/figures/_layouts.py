"""How charts of several figures are laid out: maps of weights side by side, and axes below a legend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.comparison import settled_as
from attn_exp.report import words
from attn_exp.report.charts.chart import (
    LINE,
    NARROW,
    NO_TICKS,
    Axis,
    Box,
    Chart,
    Heat,
    Part,
    Plot,
    Scale,
    Stroke,
    Ticks,
    Words,
    name_ticks,
    round_places,
    ticks_in,
)
from attn_exp.report.charts.widths import BY_TABLE, Lettering, widest
from attn_exp.report.views import Head, Panel, Views, heads_of, top
from attn_exp.report.walk import closed_by_mask

COLOURS = "Blues"

GAP, NARROWEST, SMALLEST, WIDEST = 0.12, 1.05, 0.6, 14
"""Inches between two maps; the width below which no map falls while there is room, and on a page of a given height,
where letters would be smaller instead; and the widest drawing for that."""

BAR = 0.1
"""Inches: the width of a colour scale."""

FEWEST = 2
"""A colour scale is parted by numbers into at least so many pieces."""

NUMBERS_UP_TO = 8
"""Cells hold their number where a matrix has at most this many rows and columns."""


class Reading(NamedTuple):
    """How maps are read: what a cell is, which power of it is coloured, and what a column is."""

    unit: str = words.WEIGHT
    gamma: float = 1.0
    across: str = words.KEY


WEIGHTS = Reading()


class Named(NamedTuple):
    """The names of rows and of columns, and how they are drawn."""

    rows: list[str]
    columns: list[str]
    lettering: Lettering = BY_TABLE


class Grid(NamedTuple):
    """How maps stand: so many `across` and down, each `side` inches wide and `tall`, above the names of columns."""

    across: int
    down: int
    side: float
    tall: float
    turned: bool
    bottom: float


def arranged(count: int, names: Named, room: float, height: float | None) -> Grid:
    """Return how maps stand: as many side by side as are readable, up to 4; in a given height, as they are largest."""
    if height is None:
        across = max(1, min(count, 4, int(room / NARROWEST)))
        return grid(count, names, across, min(2.4, (room - GAP * (across - 1)) / across))
    grids = []
    for across in range(1, count + 1):
        stand = grid(count, names, across, (room - GAP * (across - 1)) / across)
        for _ in range(2):  # names that have to be turned in smaller maps take room of their own
            high = ((height - stand.bottom) / stand.down - 2 * LINE) * stand.side / stand.tall
            stand = grid(count, names, across, max(0.1, min(stand.side, high)))
        grids.append(stand)
    return max(grids, key=lambda grid: grid.side)


def grid(count: int, names: Named, across: int, side: float) -> Grid:
    """Return so many maps across, of this width; a map is as tall as it has rows for its columns, within reason."""
    below = names.lettering.widest(names.columns)
    turned = below > 0.9 * side / len(names.columns)
    tall = side * max(0.4, min(2.5, len(names.rows) / len(names.columns)))
    return Grid(across, -(-count // across), side, tall, turned, 0.22 + (below if turned else LINE))


def weight_maps(
    maps: Sequence[Head], names: Named, width: float, means: Reading = WEIGHTS, height: float | None = None
) -> Chart:
    """Show maps with their titles side by side, on one colour scale from zero.

    In a given height they are as large as they can be; where they would be too small to read, the page is larger.
    """
    end = top(head.weights for head in maps)
    left = names.lettering.widest(names.rows) + 0.32
    right = max(0.55, GAP + min(map(beside, scale_ticks(end, 4))))
    stand = arranged(len(maps), names, width - left - right, height)
    if height is not None and stand.side < SMALLEST and width < WIDEST:
        return weight_maps(maps, names, 1.2 * width, means, 1.2 * height)
    across, side, tall, bottom = stand.across, stand.side, stand.tall, stand.bottom
    pitch = tall + LINE * 2
    parts: list[Part] = []
    for place, head in enumerate(maps):
        line, column = divmod(place, across)
        box = Box(left + column * (side + GAP), bottom + (stand.down - 1 - line) * pitch, side, tall)
        rows = name_ticks(names.rows, False, tall) if column == 0 else NO_TICKS
        columns = name_ticks(names.columns, stand.turned, side) if place + across >= len(maps) else NO_TICKS
        form = form_of_numbers(head.weights, side / len(names.columns))
        title = short_title(head, side, names.lettering)
        heat = Heat(box, head.weights, end, COLOURS, means.gamma, form, title, rows=rows, columns=columns)
        parts.append(heat._replace(closed=head.closed))
    parts.append(Words("query", (0.01 + 0.012 * width, bottom + tall / 2), turned=True))
    parts.append(Words(means.across, (left + side / 2, 0.03), side="center"))
    box = Box(left + across * (side + GAP), bottom + (stand.down - 1) * pitch, BAR, tall)
    bar = colour_scale(box, end, means.gamma, means.unit, right - GAP)
    return Chart(width, bottom + stand.down * pitch, (*parts, bar))


def form_of_numbers(matrix: Array, cell: float, form: str = ".2f", most: int = NUMBERS_UP_TO) -> str:
    """Return the form of the numbers in cells so many inches wide; none where they would not fit or are too many."""
    return form if max(matrix.shape) <= most and cell > 0.06 * len(format(0.01, form)) else ""


def colour_scale(box: Box, end: float, gamma: float, unit: str, room: float = 0.55 - GAP) -> Scale:
    """Return the colours from 0 to `end`, with as many numbers at the right as `room` from the box's left allows."""
    most = ticks_in(box.height)
    ticks = next((ticks for ticks in scale_ticks(end, most) if beside(ticks) <= room), None)
    return Scale(box, end, COLOURS, gamma, unit, ticks or next(scale_ticks(end, FEWEST)))


def scale_ticks(end: float, most: int) -> Iterator[Ticks]:
    """Yield numbers of two digits from 0 to `end`, fewer and fewer."""
    for pieces in range(most, FEWEST - 1, -1):
        places = round_places(0, end, pieces)
        yield Ticks(places, tuple(f"{place:.2g}" for place in places))


def beside(ticks: Ticks) -> float:
    """Return how far the numbers of a colour scale reach from its left edge, in inches."""
    return BAR + 6 / 72 + widest(ticks.names, 7.5)


def heads_in(views: Views, panels: Iterable[Panel]) -> list[Head]:
    """Return the heads of some panels, their variants' names as they can be drawn, with what a mask hides of each."""
    heads = list[Head]()
    for panel in panels:
        shut = closed_in(views, panel)
        for place, head in enumerate(heads_of(panel)):
            drawn = head._replace(variants=views.lettering.letters(head.variants))
            heads.append(drawn if shut is None else drawn._replace(closed=shut[place]))
    return heads


def closed_in(views: Views, panel: Panel) -> Array | None:
    """Return which weights `[h t s]` of a panel a mask hides; None without masks, and for means of blocks."""
    problem = views.comparison.problem
    if panel.weights.shape[1:] != (len(problem.tokens), problem.keys):
        return None
    return closed_by_mask(settled_as(views.comparison, panel.variants[0]), panel.weights)


def short_title(head: Head, width: float, lettering: Lettering = BY_TABLE) -> str:
    """Return the title of a map, shortened to this width; the number of a head stays."""
    if head.number is None or lettering.width(head.title) <= width:
        return fewer(head.title, width, lettering)
    return f"{fewer(head.variants, width - lettering.width(f' {head.number}'), lettering)} {head.number}"


def fewer(variants: str, width: float, lettering: Lettering) -> str:
    """Return variants that are the same, as many whole names as fit this width, or the beginning of the first."""
    names, said = variants.split(" = "), variants
    while len(names) > 1 and lettering.width(said) > width:
        names.pop()
        said = " = ".join([*names, "…"])
    return said if lettering.width(said) <= width else lettering.fitted(variants, width)


HIGH, LEAST = 1.85, 1.0
"""Inches: the usual height of axes, and the least."""

KEY = 0.4
"""Inches that an entry of a legend takes beside its letters."""


def inside(entries: int, bottom: float, width: float, height: float | None) -> Box:
    """Return where axes stand, as high as is usual or as the height leaves, below a legend of so many entries."""
    around = bottom + 0.1 + LINE * -(-entries // (2 if width > NARROW else 1))
    return Box(0.55, bottom, width - 0.7, HIGH if height is None else max(LEAST, height - around))


def below_legend(strokes: Sequence[Stroke], x: Axis, y: Axis, box: Box, width: float, lettering: Lettering) -> Chart:
    """Return a chart of strokes between two axes in their box, with the legend above.

    Its columns are as wide as they need where all fit side by side; else each label has an equal part of the width.
    """
    columns = 2 if width > NARROW else 1
    labels = [stroke.label + flat(stroke) for stroke in strokes if stroke.label]
    needed = [
        lettering.widest(labels[place] for place in part) for part in np.array_split(np.arange(len(labels)), columns)
    ]
    fit = sum(needed) + KEY * columns <= box.width
    room = max(needed) if fit else box.width / columns - KEY
    shown = tuple(
        stroke._replace(label=label_of(stroke, room, lettering)) if stroke.label else stroke for stroke in strokes
    )
    lines = -(-len(labels) // columns)
    height = box.bottom + box.height + 0.1 + LINE * lines
    return Chart(width, height, (Plot(box, shown, x, y, columns),))


def label_of(stroke: Stroke, room: float, lettering: Lettering) -> str:
    """Return the label of a line in this width, with what is said of one that is flat."""
    whole = stroke.label + flat(stroke)
    if lettering.width(whole) <= room:
        return whole
    return lettering.fitted(stroke.label, room - lettering.width(flat(stroke))) + flat(stroke)


def flat(stroke: Stroke) -> str:
    """Say of a line or of marks at one height that they are flat; a dotted line is there to be compared with."""
    heights = stroke.y[np.isfinite(stroke.y)]
    if stroke.dotted or len(heights) < 2 or np.ptp(heights) > 1e-9 * max(1.0, float(np.abs(heights).max())):
        return ""
    return words.FLAT.format(height=f"{heights[0]:.3g}")


def beyond(strokes: Sequence[Stroke]) -> float:
    """Return where an upward axis ends: a twentieth above what is drawn, as Matplotlib leaves it."""
    values = np.concatenate([stroke.y for stroke in strokes])
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    if high - low <= abs(high) * 1e-15:
        spread = 0.05 * abs(high) or 0.05
        low, high = low - spread, high + spread
    return high + 0.05 * (high - low)
