"""The layout of a chart, as the shapes that both renderers draw."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from attn_exp.arrays import Array
from attn_exp.report.charts.chart import (
    Axis,
    Box,
    Chart,
    Heat,
    Legend,
    Path,
    Picture,
    Plot,
    Shape,
    Stroke,
    Text,
    Ticks,
)
from attn_exp.report.charts.widths import widest
from attn_exp.report.pixels import coarse, colour_cells

BODY, TICK = 8.0, 7.5
"""Font size in points of titles and names, and of ticks and legends."""

REACH, PAD, NAME_PAD = 2.5, 3.5, 4.0
"""In points: the length of a tick, the gap to its number, and the gap from the numbers to the axis name."""

ABOVE, BELOW = 0.76, 0.236
"""Ascent and descent of letters, relative to the font size. Source: DejaVu Sans."""

MIDDLE, AT_TICK = (ABOVE - BELOW) / 2, ABOVE / 2
"""Distance of the baseline below the middle of a text, and below its tick, relative to the font size."""


def shapes_of(chart: Chart) -> Iterator[Shape]:
    for part in chart.parts:
        match part:
            case Heat():
                yield from heat_shapes(part, Box(*(72 * side for side in part.box)))
            case Plot():
                yield from plot_shapes(part, Box(*(72 * side for side in part.box)))
            case Legend():
                yield from legend_shapes(part, Box(*(72 * side for side in part.box)))
            case _:
                yield part


def heat_shapes(part: Heat, at: Box) -> Iterator[Shape]:
    left, top, width, height = at
    rows, columns = part.matrix.shape
    yield heat_picture(part, at)
    if part.form:
        for (row, column), value in np.ndenumerate(part.matrix):
            if part.closed is None or not part.closed[row, column]:
                x, y = left + (column + 0.5) * width / columns, top + (row + 0.5) * height / rows
                ink = "#ffffff" if value > 0.6 * part.end else "#000000"
                yield Text(x, y + MIDDLE * 7, format(value, part.form), 7, "center", colour=ink)
    if part.title:
        yield Text(left + width / 2, top - 6, part.title, BODY, "center")
    for place, name in zip(part.rows.places, part.rows.names, strict=True):
        yield Text(left - 2, top + (place + 0.5) * height / rows + AT_TICK * TICK, name, TICK, "right")
    yield from tick_labels(
        part.columns, [left + (place + 0.5) * width / columns for place in part.columns.places], top + height + 2
    )


def tick_labels(ticks: Ticks, places: list[float], y: float) -> Iterator[Shape]:
    for x, name in zip(places, ticks.names, strict=True):
        if ticks.turned:
            yield Text(x + MIDDLE * TICK, y, name, TICK, "right", turned=True)
        else:
            yield Text(x, y + ABOVE * TICK, name, TICK, "center")


def heat_picture(part: Heat, at: Box) -> Picture:
    closed = None if part.closed is None else coarse(part.closed.astype(float)) == 1
    return Picture(*at, colour_cells(coarse(part.matrix), part.end, part.gamma, part.colours, closed))


def plot_shapes(part: Plot, at: Box) -> Iterator[Shape]:
    left, top, right, bottom = at.left, at.top, at.left + at.width, at.top + at.height
    for stroke in part.strokes:
        across, up = relative_positions(part.x, stroke.x), relative_positions(part.y, stroke.y)
        yield from stroke_paths(stroke, left + (right - left) * across, bottom - (bottom - top) * up)
    yield Path(line_through([left, left, right], [top, bottom, bottom]), stroke="#000000", line=0.6)
    places = (left + (right - left) * relative_positions(part.x, np.array(part.x.ticks.places))).tolist()
    yield from (Path(f"M{short(x)} {short(bottom)}l0 {REACH}", stroke="#000000") for x in places)
    yield from tick_labels(part.x.ticks, places, bottom + REACH + PAD)
    y = bottom + REACH + PAD + (ABOVE + BELOW) * TICK + NAME_PAD + ABOVE * BODY
    for place, line in enumerate(filter(None, part.x.name.split("\n"))):
        yield Text((left + right) / 2, y + place * 1.2 * BODY, line, BODY, "center")
    heights = (bottom - (bottom - top) * relative_positions(part.y, np.array(part.y.ticks.places))).tolist()
    for height, name in zip(heights, part.y.ticks.names, strict=True):
        yield Path(f"M{short(left)} {short(height)}l{-REACH} 0", stroke="#000000")
        yield Text(left - REACH - PAD, height + AT_TICK * TICK, name, TICK, "right")
    beside = left - REACH - PAD - 72 * widest(part.y.ticks.names, TICK) - NAME_PAD - BELOW * BODY
    yield Text(beside, (top + bottom) / 2, part.y.name, BODY, "center", turned=True)
    yield from legend_shapes(part, at)


def relative_positions(axis: Axis, values: Array) -> Array:
    if axis.log:
        return np.asarray(np.log(values / axis.low) / math.log(axis.high / axis.low))
    return np.asarray((values - axis.low) / (axis.high - axis.low))


def legend_shapes(part: Plot | Legend, at: Box) -> Iterator[Shape]:
    shown = [stroke for stroke in part.strokes if stroke.label]
    columns = np.array_split(np.arange(len(shown)), part.columns)
    left = at.left + 0.6 * TICK
    for column in columns:
        for row, stroke in enumerate(shown[entry] for entry in column):
            y = at.top - (1.1 + 1.3 * (len(columns[0]) - 1 - row)) * TICK
            ends = left + TICK * np.array([0.0, 2.0])
            yield from stroke_paths(stroke._replace(mark="", steps=False), ends, np.full(2, y))
            yield from stroke_paths(stroke._replace(width=0.0, opacity=1.0), ends.mean(keepdims=True), np.full(1, y))
            yield Text(left + 2.8 * TICK, y + MIDDLE * TICK, stroke.label, TICK)
        left += 4.8 * TICK + 72 * widest((shown[entry].label for entry in column), TICK)


def stroke_paths(stroke: Stroke, x: Array, y: Array) -> Iterator[Path]:
    """Yield the line and the marks of a stroke; dots are as long as the line is wide."""
    if stroke.width:
        dots = (stroke.width, 1.65 * stroke.width) if stroke.dotted else None
        path = line_through(x.tolist(), y.tolist(), stroke.steps)
        yield Path(path, "none", stroke.colour, stroke.width, dots)
    if stroke.mark:
        mark = outline(stroke.mark, stroke.size)
        places = [(across, down) for across, down in zip(x.tolist(), y.tolist(), strict=True) if math.isfinite(down)]
        path = "".join(f"M{short(across)} {short(down)}{mark}" for across, down in places)
        yield Path(path, stroke.colour, stroke.colour, 1.0, opacity=stroke.opacity)


def line_through(x: Sequence[float], y: Sequence[float], steps: bool = False) -> str:
    letters, last = [], math.nan
    for across, down in zip(x, y, strict=True):
        if math.isfinite(down):
            step = f"L{short(across)} {short(last)}" if steps and math.isfinite(last) else ""
            letters.append(f"{step}{'L' if math.isfinite(last) else 'M'}{short(across)} {short(down)}")
        last = down
    return "".join(letters)


def short(number: float) -> str:
    """Format a number of points, rounded to hundredths."""
    return f"{round(number, 2) + 0.0:.7g}"


THIRD = 1 / 3
MARKS = {
    "s": [(-0.5, -0.5), (1, 0), (0, 1), (-1, 0)],
    "D": [(0, -(0.5**0.5)), (0.5**0.5, 0.5**0.5), (-(0.5**0.5), 0.5**0.5), (-(0.5**0.5), -(0.5**0.5))],
    "^": [(0, -0.5), (0.5, 1), (-1, 0)],
    "v": [(0, 0.5), (0.5, -1), (-1, 0)],
    "P": [
        (-THIRD / 2, -0.5), (THIRD, 0), (0, THIRD), (THIRD, 0), (0, THIRD), (-THIRD, 0),
        (0, THIRD), (-THIRD, 0), (0, -THIRD), (-THIRD, 0), (0, -THIRD), (THIRD, 0),
    ],
    "X": [
        (-0.25, -0.5), (0.25, 0.25), (0.25, -0.25), (0.25, 0.25), (-0.25, 0.25), (0.25, 0.25),
        (-0.25, 0.25), (-0.25, -0.25), (-0.25, 0.25), (-0.25, -0.25), (0.25, -0.25), (-0.25, -0.25),
    ],
}  # fmt: skip
"""The offset of a mark's first corner from its centre, then of each corner from the last, with y downwards."""

CIRCLE = (
    (0, 0.276, 0.224, 0.5, 0.5, 0.5), (0.276, 0, 0.5, -0.224, 0.5, -0.5),
    (0, -0.276, -0.224, -0.5, -0.5, -0.5), (-0.276, 0, -0.5, 0.224, -0.5, 0.5),
)  # fmt: skip
"""A circle of diameter 1 as four Bézier curves from its left end, in relative coordinates."""


def outline(mark: str, size: float) -> str:
    if mark == "o":
        curves = (" ".join(f"{size * number:.3g}" for number in curve) for curve in CIRCLE)
        return f"m{-size / 2:g} 0c{'c'.join(curves)}z"
    return "m" + "l".join(f"{x * size:.3g} {y * size:.3g}" for x, y in MARKS[mark]) + "z"
