"""A chart as an SVG whose text is text: it looks alike wherever it is shown, and needs no font of its own."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import numpy as np

from attn_exp.report.charts.chart import Box, Chart, Heat, Part, Plot, Scale, Ticks, Words
from attn_exp.report.charts.colours import palette, shades
from attn_exp.report.charts.strokes import plot
from attn_exp.report.charts.text import BODY, TICK, Pen, short
from attn_exp.report.pixels import coloured

INCH = 160
"""Pixels of an inch of a map with more than `CELLS` cells; fewer are stored cell by cell."""

CELLS = 10_000

PITCH = 1.28
"""From line to line of a text, in sizes of the type."""

FONTS = "DejaVu Sans, Verdana, sans-serif"


def written(chart: Chart) -> bytes:
    """Return a chart as the bytes of an SVG, equal for equal charts."""
    pen, (width, height) = Pen(chart.height), chart.page or (chart.width, chart.height)
    left, top = short(36 * (chart.width - width)), short(36 * (chart.height - height))
    wide, high = short(72 * width), short(72 * height)
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" xml:space="preserve"'
    size = f'width="{short(72 * width * chart.zoom)}pt" height="{short(72 * height * chart.zoom)}pt"'
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        f'<svg {spaces} {size} viewBox="{left} {top} {wide} {high}" font-family="{FONTS}">',
        f'<rect x="{left}" y="{top}" width="{wide}" height="{high}" fill="#fff"/>',
        *(line for place, part in enumerate(chart.parts) for line in part_lines(pen, part, f"p{place}")),
        "</svg>",
    ]
    return "\n".join((*lines, "")).encode("utf-8", "backslashreplace")


def part_lines(pen: Pen, part: Part, name: str) -> Iterator[str]:
    """Yield the elements of one part; `name` is one that no other part has."""
    match part:
        case Words():
            yield from words(pen, part)
        case Heat():
            yield from heat(pen, part)
        case Scale():
            yield from scale(pen, part)
        case Plot():
            yield from plot(pen, part, name)


def words(pen: Pen, part: Words) -> Iterator[str]:
    """Yield the lines of a text, the last one lowest."""
    if part.turned:
        yield pen.text(part.text, part.at, part.size, "center", "top", turned=True)
        return
    for place, line in enumerate(reversed(part.text.split("\n"))):
        yield pen.text(line, (part.at[0], part.at[1] + place * PITCH * part.size / 72), part.size, part.side, "bottom")


def heat(pen: Pen, part: Heat) -> Iterator[str]:
    """Yield the picture of the cells, their numbers, the title and the names along the sides."""
    yield image(pen, part.box, part)
    if part.form:
        yield from numbers(pen, part)
    if part.title:
        yield title(pen, part.box, part.title, part.title_side)
    left, bottom, width, height = part.box
    down, across = part.matrix.shape
    for place, name in zip(part.rows.places, part.rows.names, strict=True):
        middle = bottom + height * (1 - (place + 0.5) / down)
        yield pen.text(name, (left - 2 / 72, middle), TICK, "right", "tick")
    yield from below(pen, part.columns, (left, bottom - 2 / 72), width / across)


def below(pen: Pen, ticks: Ticks, corner: tuple[float, float], pitch: float) -> Iterator[str]:
    """Yield names below the cells of an axis, each of which is `pitch` inches wide."""
    for place, name in zip(ticks.places, ticks.names, strict=True):
        yield pen.below(name, (corner[0] + (place + 0.5) * pitch, corner[1]), ticks.turned)


def title(pen: Pen, box: Box, text: str, side: str) -> str:
    """Return the title above a box."""
    across = box.left + (box.width / 2 if side == "center" else 0)
    return pen.text(text, (across, box.bottom + box.height + 6 / 72), BODY, "center" if side == "center" else "left")


def numbers(pen: Pen, part: Heat) -> Iterator[str]:
    """Yield the number in each cell, white upon dark ones."""
    left, bottom, width, height = part.box
    down, across = part.matrix.shape
    for (row, column), value in np.ndenumerate(part.matrix):
        if part.closed is not None and part.closed[row, column]:
            continue
        at = (left + (column + 0.5) * width / across, bottom + (1 - (row + 0.5) / down) * height)
        ink = "#fff" if value > 0.6 * part.end else ""
        yield pen.text(format(value, part.form), at, 7, "center", "middle", ink=ink)


def image(pen: Pen, box: Box, part: Heat | Scale) -> str:
    """Return the cells as a picture that is stretched to its box."""
    matrix = part.matrix if isinstance(part, Heat) else np.linspace(part.end, 0, 256)[:, None]
    closed = part.closed if isinstance(part, Heat) else None
    if matrix.size > CELLS:
        picks = [nearest(count, side) for count, side in zip(matrix.shape, (box.height, box.width), strict=True)]
        matrix = matrix[np.ix_(*picks)]
        closed = None if closed is None else closed[np.ix_(*picks)]
    png = coloured(shades(matrix, part.end, part.gamma), palette(part.colours), np.isfinite(matrix), closed)
    return (
        f'<image {pen.placed(box)} preserveAspectRatio="none" '
        'style="image-rendering:crisp-edges;image-rendering:pixelated" '
        f'xlink:href="data:image/png;base64,{base64.b64encode(png).decode()}"/>'
    )


def nearest(count: int, inches: float) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Return which of so many cells stand at the pixels along a side."""
    pixels = min(count, max(1, round(INCH * inches)))
    return ((np.arange(pixels) + 0.5) * count / pixels).astype(np.intp)


def scale(pen: Pen, part: Scale) -> Iterator[str]:
    """Yield the colours in their frame, the numbers at the right and the title."""
    left, bottom, width, height = part.box
    yield image(pen, part.box, part)
    yield f'<rect {pen.placed(part.box)} fill="none" stroke="#000" stroke-width=".6"/>'
    for place, name in zip(part.ticks.places, part.ticks.names, strict=True):
        at = bottom + height * place / part.end
        yield pen.line((left + width, at), (left + width + 2.5 / 72, at), "tick")
        yield pen.text(name, (left + width + 6 / 72, at), TICK, "left", "tick")
    yield title(pen, part.box, part.title, "left")
