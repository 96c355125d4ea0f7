"""Layouts of charts: place maps and axes on a sheet, and turn them into the shapes that both renderers draw."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array
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
    Picture,
    Plot,
    Rect,
    Shape,
    Stroke,
    Text,
    Ticks,
    fit_text,
    name_ticks,
    number_ticks,
    round_places,
    ticks_in,
    widest,
)
from attn_exp.report.charts.chart import width as width_of
from attn_exp.report.pixels import average_blocks, colour_cells
from attn_exp.report.views import Head, largest_weight

COLOURS = "Blues"

GAP, NARROWEST = 0.12, 1.05
"""The gap between two maps, and the minimum width of a map if there is room, in inches."""

BAR = 0.1
"""The width of a colour scale, in inches."""

LONG = 0.5
"""A unit that is longer than this, in inches, reads upwards next to the colour scale; a shorter one is above it."""

PIECES = 4
"""Maximum number of intervals between the numbers of a colour scale."""

NUMBERS_UP_TO = 8
"""Cells show their numbers if a matrix has at most this many rows and columns."""


class MapLabels(NamedTuple):
    """The labels of some maps, and how their numbers are coloured and written.

    `rows`, `columns`: the names of the rows and of the columns.
    `across`, `down`: the names of the axes.
    `unit`: the text next to the colour scale.
    `low`, `high`: the ends of the colour scale; None means the largest number.
    `colours`: the name of the colour map.
    `form`: the format of the numbers in cells.
    """

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
    maps: Sequence[Head], names: MapLabels, width: float, gamma: float = 1.0, height: float | None = None
) -> Chart:
    """Return a chart of maps with titles, in rows, and one colour scale; a given height is filled as far as possible.

    `gamma` is the exponent of the colour scale.
    """
    # 0.32 inches are for the name of the axis, 6 points for the gap between the colour scale and its numbers
    low, high = names.low, largest_weight(head.weights for head in maps) if names.high is None else names.high
    left_room, name_room = widest(names.rows) + 0.32, widest(names.columns)
    scale_room = GAP + BAR + 6 / 72 + widest(scale_ticks(low, high).names, 7.5)
    right_room = max(0.55, scale_room + (LINE if width_of(names.unit) > LONG else 0))
    # a map has the proportions of its matrix, within limits
    ratio = max(0.4, min(2.5, len(names.rows) / len(names.columns)))
    per_row, map_width = arrange_maps(
        len(maps), width - left_room - right_room, ratio, None if height is None else height - 0.22 - name_room
    )
    is_turned, map_height = name_room > 0.9 * map_width / len(names.columns), map_width * ratio
    pitch, rows_of_maps = map_height + 2 * LINE, math.ceil(len(maps) / per_row)  # each map has a title above
    total_height = rows_of_maps * pitch + 0.22 + (name_room if is_turned else LINE)
    # the cells are wide enough for numbers
    is_written = not low and map_width / len(names.columns) > 0.06 * len(format(0.01, names.form))
    parts: list[Part] = []
    for index, head in enumerate(maps):
        row, column = divmod(index, per_row)
        box = Box(left_room + column * (map_width + GAP), row * pitch + 2 * LINE, map_width, map_height)
        rows = name_ticks(names.rows, False, map_height) if column == 0 else NO_TICKS
        columns = name_ticks(names.columns, is_turned, map_width) if index + per_row >= len(maps) else NO_TICKS
        form = names.form if is_written and max(head.weights.shape) <= NUMBERS_UP_TO else ""
        title = short_title(head, map_width)
        span = (high - low) or 1.0
        parts.append(
            Heat(box, head.weights - low, span, names.colours, gamma, form, title, rows, columns, head.is_masked)
        )
    middle = (rows_of_maps - 0.5) * pitch + LINE
    parts.append(Text(7 + 0.9 * width, 72 * middle, names.down, side="center", turned=True))
    parts.append(Text(72 * (left_room + map_width / 2), 72 * total_height - 4, names.across, side="center"))
    bar = Box(left_room + per_row * (map_width + GAP), 2 * LINE, BAR, map_height)
    parts += colour_scale(bar, high, gamma, names.unit, right_room - GAP, low=low, colours=names.colours)
    return Chart(min(width, left_room + per_row * (map_width + GAP) + right_room), total_height, tuple(parts))


def arrange_maps(count: int, width: float, ratio: float, height: float | None) -> tuple[int, float]:
    """Return the number of maps per row, and the width of a map.

    Maps are `ratio` times as high as they are wide. If a height is given, they are as large as fits into it.
    """
    if height is None:
        per_row = max(1, min(count, 4, int(width / NARROWEST)))
        return per_row, min(2.4, (width - GAP * (per_row - 1)) / per_row)
    # for each number of maps per row: the width at which they fill the sheet or the height, whichever is smaller
    candidates = [
        (min((width - GAP * (per_row - 1)) / per_row, (height / -(-count // per_row) - 2 * LINE) / ratio), per_row)
        for per_row in range(1, count + 1)
    ]
    map_width, per_row = max(candidates)
    return per_row, max(0.1, map_width)


def colour_scale(
    box: Box, high: float, gamma: float, unit: str, room: float = 0.55 - GAP, *, low: float = 0, colours: str = COLOURS
) -> Iterator[Part]:
    """Yield the parts of a colour scale from `low` to `high`; with the numbers on its right, it is `room` wide."""
    ticks = scale_ticks(low, high, ticks_in(box.height))
    span = (high - low) or 1.0
    yield Heat(box, np.linspace(span, 0, 256)[:, None], span, colours, gamma)
    left, top, width, height = (72 * side for side in box)
    if width_of(unit) > LONG:
        yield Text(left + 72 * room - 4, top + height / 2, unit, side="center", turned=True)
    else:
        yield Text(left + 72 * room - 4, top - 6, unit, side="right")
    yield Rect(left, top, width, height, stroke="#000000")
    for value, name in zip(ticks.places, ticks.names, strict=True):
        y = top + height * (1 - (value - low) / span)
        yield Path(f"M{left + width:g} {y:g}l2.5 0", stroke="#000000")
        yield Text(left + width + 6, y + 2.9, name, 7.5)


def scale_ticks(low: float, high: float, most: int = PIECES) -> Ticks:
    values = round_places(low, high, max(2, min(most, PIECES)))
    return Ticks(values, tuple(f"{value:{'.4g' if low else '.2g'}}" for value in values))


def short_title(head: Head, width: float) -> str:
    if head.number is None or width_of(head.title) <= width:
        return fit_text(head.title, width)
    return f"{fit_text(head.variants, width - width_of(f' {head.number}'))} {head.number}"


HIGH, LEAST = 1.85, 1.0
"""The default height and the minimum height of a plot area, in inches."""

LEFT, BESIDE = 0.55, 0.7
"""The space to the left of a plot area, and on both sides together, in inches."""

KEY = 0.4
"""The width of a legend entry without its text, in inches."""


def line_chart(strokes: Sequence[Stroke], x: Axis, y: Axis, below: float, width: float, height: float | None) -> Chart:
    """Return a chart of strokes between two axes, with a legend above and round numbers along `y`.

    `below` is the height of what is below the plot area, in inches. The columns of the legend are as wide as necessary
    if all of them fit. If not, they share the width equally, and labels are shortened.
    """
    columns = 2 if width > NARROW else 1
    labels = [stroke.label for stroke in strokes if stroke.label]
    label_widths = [widest(part) for part in np.array_split(np.array(labels), columns)]
    label_room = (
        (width - BESIDE) / columns - KEY if sum(label_widths) + KEY * columns > width - BESIDE else max(label_widths)
    )
    fitted_strokes = tuple(stroke._replace(label=fit_text(stroke.label, label_room)) for stroke in strokes)
    legend_height = 0.1 + LINE * -(-len(labels) // columns)
    box = Box(
        LEFT, legend_height, width - BESIDE, HIGH if height is None else max(LEAST, height - legend_height - below)
    )
    y = y._replace(ticks=number_ticks(y.low, y.high, box.height))
    return Chart(width, legend_height + box.height + below, (Plot(box, fitted_strokes, x, y, columns),))


BODY, TICK = 8.0, 7.5
"""The font sizes of titles and names, and of ticks and legends, in points."""

REACH, PAD, NAME_PAD = 2.5, 3.5, 4.0
"""In points: the length of a tick, the gap to its number, and the gap from the numbers to the axis name."""

ABOVE, BELOW = 0.76, 0.236
"""Ascent and descent of letters, relative to the font size. Source: DejaVu Sans."""

MIDDLE, AT_TICK = (ABOVE - BELOW) / 2, ABOVE / 2
"""How far the baseline is below the middle of a line, and below the tick of a label, relative to the font size."""


def shapes_of(chart: Chart) -> Iterator[Shape]:
    for part in chart.parts:
        match part:
            case Heat():
                yield from heat_shapes(part, Box(*(72 * side for side in part.box)))
            case Plot():
                yield from plot_shapes(part, Box(*(72 * side for side in part.box)))
            case _:
                yield part


def heat_shapes(part: Heat, box: Box) -> Iterator[Shape]:
    left, top, width, height = box
    rows, columns = part.matrix.shape
    # a pixel that averages several cells is grey only if all of them are masked
    masked_pixels = None if part.is_masked is None else average_blocks(part.is_masked.astype(float)) == 1
    yield Picture(*box, colour_cells(average_blocks(part.matrix), part.end, part.gamma, part.colours, masked_pixels))
    if part.form:
        for (row, column), value in np.ndenumerate(part.matrix):
            if part.is_masked is None or not part.is_masked[row, column]:
                x, y = left + (column + 0.5) * width / columns, top + (row + 0.5) * height / rows
                text_colour = "#ffffff" if value > 0.6 * part.end else "#000000"
                yield Text(x, y + MIDDLE * 7, format(value, part.form), 7, "center", colour=text_colour)
    if part.title:
        yield Text(left + width / 2, top - 6, part.title, BODY, "center")
    for index, name in zip(part.rows.places, part.rows.names, strict=True):
        yield Text(left - 2, top + (index + 0.5) * height / rows + AT_TICK * TICK, name, TICK, "right")
    yield from tick_labels(
        part.columns, [left + (index + 0.5) * width / columns for index in part.columns.places], top + height + 2
    )


def tick_labels(ticks: Ticks, positions: list[float], y: float) -> Iterator[Shape]:
    for x, name in zip(positions, ticks.names, strict=True):
        if ticks.turned:
            yield Text(x + MIDDLE * TICK, y, name, TICK, "right", turned=True)
        else:
            yield Text(x, y + ABOVE * TICK, name, TICK, "center")


def plot_shapes(part: Plot, box: Box) -> Iterator[Shape]:
    left, top, right, bottom = box.left, box.top, box.left + box.width, box.top + box.height
    for stroke in part.strokes:
        across, up = relative_positions(part.x, stroke.x), relative_positions(part.y, stroke.y)
        yield from stroke_paths(stroke, left + (right - left) * across, bottom - (bottom - top) * up)
    yield Path(line_through([left, left, right], [top, bottom, bottom]), stroke="#000000", line=0.6)
    tick_positions = (left + (right - left) * relative_positions(part.x, np.array(part.x.ticks.places))).tolist()
    yield from (Path(f"M{as_text(x)} {as_text(bottom)}l0 {REACH}", stroke="#000000") for x in tick_positions)
    yield from tick_labels(part.x.ticks, tick_positions, bottom + REACH + PAD)
    y = bottom + REACH + PAD + (ABOVE + BELOW) * TICK + NAME_PAD + ABOVE * BODY
    for index, line in enumerate(filter(None, part.x.name.split("\n"))):
        yield Text((left + right) / 2, y + index * 1.2 * BODY, line, BODY, "center")
    heights = (bottom - (bottom - top) * relative_positions(part.y, np.array(part.y.ticks.places))).tolist()
    for height, name in zip(heights, part.y.ticks.names, strict=True):
        yield Path(f"M{as_text(left)} {as_text(height)}l{-REACH} 0", stroke="#000000")
        yield Text(left - REACH - PAD, height + AT_TICK * TICK, name, TICK, "right")
    name_x = left - REACH - PAD - 72 * widest(part.y.ticks.names, TICK) - NAME_PAD - BELOW * BODY
    yield Text(name_x, (top + bottom) / 2, part.y.name, BODY, "center", turned=True)
    yield from legend_shapes(part.strokes, part.columns, left, top)


def relative_positions(axis: Axis, values: Array) -> Array:
    # 0 at the start of the axis, 1 at its end
    if axis.log:
        return np.asarray(np.log(values / axis.low) / math.log(axis.high / axis.low))
    return np.asarray((values - axis.low) / (axis.high - axis.low))


def legend_shapes(strokes: Sequence[Stroke], column_count: int, left: float, bottom: float) -> Iterator[Shape]:
    """Yield a legend of the strokes that have a label, in columns, above and to the right of a point.

    An entry is a line with a mark in its middle, and a label to the right of it.
    """
    labelled = [stroke for stroke in strokes if stroke.label]
    columns = np.array_split(np.arange(len(labelled)), column_count)
    left += 0.6 * TICK
    for column in columns:
        for row, stroke in enumerate(labelled[entry] for entry in column):
            y = bottom - (1.1 + 1.3 * (len(columns[0]) - 1 - row)) * TICK
            ends = left + TICK * np.array([0.0, 2.0])
            yield from stroke_paths(stroke._replace(mark="", steps=False), ends, np.full(2, y))
            yield from stroke_paths(stroke._replace(width=0.0, opacity=1.0), ends.mean(keepdims=True), np.full(1, y))
            yield Text(left + 2.8 * TICK, y + MIDDLE * TICK, stroke.label, TICK)
        left += 4.8 * TICK + 72 * widest((labelled[entry].label for entry in column), TICK)


def stroke_paths(stroke: Stroke, x: Array, y: Array) -> Iterator[Path]:
    """Yield the line and the marks of a stroke; the dots of a dotted line are as long as the line is wide."""
    if stroke.width:
        dots = (stroke.width, 1.65 * stroke.width) if stroke.dotted else None
        path = line_through(x.tolist(), y.tolist(), stroke.steps)
        yield Path(path, "none", stroke.colour, stroke.width, dots)
    if stroke.mark:
        mark = outline(stroke.mark, stroke.size)
        points = [
            (across, down) for across, down in zip(x.tolist(), y.tolist(), strict=True) if math.isfinite(across + down)
        ]
        path = "".join(f"M{as_text(across)} {as_text(down)}{mark}" for across, down in points)
        yield Path(path, stroke.colour, stroke.colour, 1.0, opacity=stroke.opacity)


def line_through(x: Sequence[float], y: Sequence[float], steps: bool = False) -> str:
    """Return a path through some points in SVG syntax; NaN interrupts it, and `steps` keeps each y until the next x."""
    commands, last_y = [], math.nan
    for across, down in zip(x, y, strict=True):
        if math.isfinite(across + down):
            step = f"L{as_text(across)} {as_text(last_y)}" if steps and math.isfinite(last_y) else ""
            commands.append(f"{step}{'L' if math.isfinite(last_y) else 'M'}{as_text(across)} {as_text(down)}")
        last_y = down + 0 * across  # NaN if either is NaN: the line is interrupted
    return "".join(commands)


def as_text(number: float) -> str:
    """Return a length in points as text, rounded to hundredths."""
    return f"{round(number, 2) + 0.0:.7g}"


MARKS = {
    "s": "m-.5 -.5l1 0l0 1l-1 0z",
    "D": "m0 -.7071l.7071 .7071l-.7071 .7071l-.7071 -.7071z",
    "^": "m0 -.5l.5 1l-1 0z",
    "v": "m0 .5l.5 -1l-1 0z",
    "P": "m-.1667 -.5l.3333 0l0 .3333l.3333 0l0 .3333l-.3333 0l0 .3333l-.3333 0l0 -.3333l-.3333 0l0 -.3333l.3333 0z",
    "X": "m-.25 -.5l.25 .25l.25 -.25l.25 .25l-.25 .25l.25 .25l-.25 .25"
    "l-.25 -.25l-.25 .25l-.25 -.25l.25 -.25l-.25 -.25z",
    "o": "m-.5 0c0 .276 .224 .5 .5 .5c.276 0 .5 -.224 .5 -.5c0 -.276 -.224 -.5 -.5 -.5c-.276 0 -.5 .224 -.5 .5z",
}
"""The outline of each mark with diameter 1, relative to its centre, in SVG syntax; `o` is four Bézier curves."""


def outline(mark: str, size: float) -> str:
    return re.sub(r"-?[.\d]+", lambda number: f"{size * float(number[0]):.3g}", MARKS[mark])
