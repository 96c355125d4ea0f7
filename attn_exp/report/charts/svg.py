"""A chart as an SVG whose text is text: it looks alike wherever it is shown, and needs no font of its own."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from html import escape
from typing import Literal, NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import printable
from attn_exp.report.charts.chart import (
    PAPER,
    QUIET,
    Axis,
    Box,
    Chart,
    Curve,
    Heat,
    Label,
    Part,
    Plot,
    Rect,
    Scale,
    Shape,
    Sheet,
    Stroke,
    Ticks,
    Words,
)
from attn_exp.report.charts.widths import known, widest, width
from attn_exp.report.pixels import coloured, palette, shades

INCH = 160
"""Pixels of an inch of a map with more than `CELLS` cells; fewer are stored cell by cell."""

CELLS = 10_000

PITCH = 1.28
"""From line to line of a text, in sizes of the type."""

FONTS = "DejaVu Sans, Verdana, sans-serif"


def chart_as_svg(chart: Chart) -> bytes:
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


REACH = 2.5 / 72
"""Inches: how far a tick reaches out."""

PAD = 3.5 / 72
"""Inches between a tick and its number."""

NAME_PAD = 4 / 72
"""Inches between the numbers of an axis and its name."""


def plot(pen: Pen, part: Plot, name: str) -> Iterator[str]:
    """Yield what a plot is made of; `name` is one that no other part of the chart has."""
    left, bottom, width, height = part.box
    yield f'<clipPath id="{name}"><rect {pen.placed(part.box)}/></clipPath>'
    yield f'<g clip-path="url(#{name})">'
    for place, stroke in enumerate(part.strokes):
        x = (left + width * share(part.x, stroke.x)) * 72
        y = (pen.height - bottom - height * share(part.y, stroke.y)) * 72
        yield from drawn(stroke, x, y, f"{name}m{place}")
    yield "</g>"
    yield pen.line((left, bottom), (left, bottom + height), "spine")
    yield pen.line((left, bottom), (left + width, bottom), "spine")
    yield from along(pen, part)
    yield from upwards(pen, part)
    yield from legend(pen, part, name)


def share(axis: Axis, values: Array) -> Array:
    """Return how far along an axis values lie, from 0 to 1."""
    if axis.log:
        return np.asarray(np.log(values / axis.low) / math.log(axis.high / axis.low))
    return np.asarray((values - axis.low) / (axis.high - axis.low))


def drawn(stroke: Stroke, x: Array, y: Array, name: str) -> Iterator[str]:
    """Yield the line and the marks of a stroke through points on the sheet."""
    if stroke.width:
        yield f'<path d="{path(x, y, stroke.steps)}" {look(stroke)}/>'
    if stroke.mark:
        faint = f' opacity="{stroke.opacity:g}"' if stroke.opacity < 1 else ""
        yield f'<defs><path id="{name}" d="{outline(stroke.mark, stroke.size)}" stroke="{stroke.colour}"/></defs>'
        yield f'<g fill="{stroke.colour}"{faint}>'
        for across, down in zip(x, y, strict=True):
            if np.isfinite(across) and np.isfinite(down):
                yield f'<use xlink:href="#{name}" x="{short(across)}" y="{short(down)}"/>'
        yield "</g>"


def look(stroke: Stroke) -> str:
    """Return how the line of a stroke looks, as attributes; dots are as long as the line is wide."""
    dots = f' stroke-dasharray="{stroke.width:g} {1.65 * stroke.width:g}"' if stroke.dotted else ""
    return f'fill="none" stroke="{stroke.colour}" stroke-width="{stroke.width:g}" stroke-linejoin="round"{dots}'


def path(x: Array, y: Array, steps: bool) -> str:
    """Return the line through points; it starts anew after what is no number."""
    words, begun = [], False
    for place, (across, down) in enumerate(zip(x, y, strict=True)):
        if not (np.isfinite(across) and np.isfinite(down)):
            begun = False
            continue
        if begun and steps:
            words.append(f"L{short(across)} {short(y[place - 1])}")
        words.append(f"{'L' if begun else 'M'}{short(across)} {short(down)}")
        begun = True
    return "".join(words)


def along(pen: Pen, part: Plot) -> Iterator[str]:
    """Yield the ticks of the lower axis, their names and the name of the axis below them."""
    left, bottom, width, _ = part.box
    ticks = part.x.ticks
    for place, name in zip(share(part.x, np.array(ticks.places)), ticks.names, strict=True):
        across = left + width * place
        yield pen.line((across, bottom), (across, bottom - REACH), "tick")
        yield pen.below(name, (across, bottom - REACH - PAD), ticks.turned)
    top = bottom - REACH - PAD - (ABOVE + BELOW) * TICK / 72 - NAME_PAD
    for place, line in enumerate(filter(None, part.x.name.split("\n"))):
        yield pen.text(line, (left + width / 2, top - place * 1.2 * BODY / 72), BODY, "center", "top")


def upwards(pen: Pen, part: Plot) -> Iterator[str]:
    """Yield the ticks of the left axis, their numbers and the name of the axis beside them, which reads upwards."""
    left, bottom, _, height = part.box
    ticks = part.y.ticks
    for place, name in zip(share(part.y, np.array(ticks.places)), ticks.names, strict=True):
        up = bottom + height * place
        yield pen.line((left, up), (left - REACH, up), "tick")
        yield pen.text(name, (left - REACH - PAD, up), TICK, "right", "tick")
    if part.y.name:
        across = left - REACH - PAD - widest(ticks.names, TICK) - NAME_PAD
        yield pen.text(part.y.name, (across, bottom + height / 2), BODY, "center", "bottom", turned=True)


def legend(pen: Pen, part: Plot, name: str) -> Iterator[str]:
    """Yield the strokes that have labels above the plot, in columns that are filled one after the other."""
    em = TICK / 72
    shown = [(place, stroke) for place, stroke in enumerate(part.strokes) if stroke.label]
    columns = np.array_split(np.arange(len(shown)), part.columns)
    rows, left = len(columns[0]), part.box.left + 0.6 * em
    top = part.box.bottom + part.box.height + 0.6 * em
    for column in columns:
        for row, entry in enumerate(column):
            place, stroke = shown[entry]
            middle = top + (rows - 1 - row) * 1.3 * em + 0.5 * em
            ends = np.array([left, left + em, left + 2 * em]) * 72
            yield from key(stroke, ends, (pen.height - middle) * 72, f"{name}k{place}")
            yield pen.text(stroke.label, (left + 2.8 * em, middle), TICK, "left", "middle")
        left += 4.8 * em + widest((shown[entry][1].label for entry in column), TICK)


def key(stroke: Stroke, x: Array, y: float, name: str) -> Iterator[str]:
    """Yield what stands beside a label: the line, and one mark in its middle."""
    if stroke.width:
        yield f'<path d="{path(x[::2], np.full(2, y), False)}" {look(stroke)}/>'
    if stroke.mark:
        where = f'transform="translate({short(x[1])} {short(y)})"'
        yield f'<path d="{outline(stroke.mark, stroke.size)}" {where} fill="{stroke.colour}" stroke="{stroke.colour}"/>'


BODY, TICK = 8.0, 7.5
"""Points: the size of titles and names, and of what stands at ticks and in legends."""

ABOVE, BELOW = 0.76, 0.236
"""How far letters reach above and below the line that they stand on, in sizes of the type. Source: DejaVu Sans."""

ANCHORS = {"left": "", "center": ' text-anchor="middle"', "right": ' text-anchor="end"'}
Up = Literal["base", "bottom", "middle", "tick", "top"]
LIFT = {"base": 0.0, "bottom": -BELOW, "middle": (ABOVE - BELOW) / 2, "tick": ABOVE / 2, "top": ABOVE}
"""How far below a place the line of a text lies that stands on it, above it, across it, beside its tick or under it."""

STROKES = {"spine": 'stroke-width=".6"', "tick": 'stroke-width=".8"'}


class Pen(NamedTuple):
    """Writes on a sheet that is `height` inches high."""

    height: float

    def at(self, place: tuple[float, float]) -> tuple[float, float]:
        """Return a place in points from the upper left."""
        return place[0] * 72, (self.height - place[1]) * 72

    def text(
        self, text: str, place: tuple[float, float], size: float, side: str = "left", up: Up = "base",
        turned: bool = False, ink: str = "",
    ) -> str:  # fmt: skip
        """Return a text at a place; letters of a known width take just that, whatever the font."""
        x, y = self.at(place)
        if turned:
            where = f'transform="translate({short(x + LIFT[up] * size)} {short(y)})rotate(-90)"'
        else:
            where = f'x="{short(x)}" y="{short(y + LIFT[up] * size)}"'
        points = width(text, size) * 72
        length = f' textLength="{short(points)}" lengthAdjust="spacingAndGlyphs"' if points and known(text) else ""
        fill = f' fill="{ink}"' if ink else ""
        return f'<text {where} font-size="{size:g}"{ANCHORS[side]}{length}{fill}>{escape(text, quote=False)}</text>'

    def below(self, name: str, place: tuple[float, float], turned: bool) -> str:
        """Return a name under a place of an axis, across or upwards."""
        return self.text(name, place, TICK, "right" if turned else "center", "middle" if turned else "top", turned)

    def line(self, start: tuple[float, float], end: tuple[float, float], look: str) -> str:
        """Return a black line: a `spine` of an axis, or a `tick`."""
        (x, y), (to_x, to_y) = self.at(start), self.at(end)
        return f'<path d="M{short(x)} {short(y)}L{short(to_x)} {short(to_y)}" stroke="#000" {STROKES[look]}/>'

    def placed(self, box: Box) -> str:
        """Return where a box is, as attributes."""
        x, y = self.at((box.left, box.bottom + box.height))
        return f'x="{short(x)}" y="{short(y)}" width="{short(box.width * 72)}" height="{short(box.height * 72)}"'


def short(number: float) -> str:
    """Return a number of points to the hundredth, in few characters."""
    return f"{round(number, 2) + 0.0:.7g}"


HALF = 0.5
ARM = 1 / 6
TURNED = 0.5**0.5

POLYGONS: dict[str, tuple[tuple[float, float], ...]] = {
    "s": ((-HALF, -HALF), (HALF, -HALF), (HALF, HALF), (-HALF, HALF)),
    "D": ((0, -TURNED), (TURNED, 0), (0, TURNED), (-TURNED, 0)),
    "^": ((0, -HALF), (HALF, HALF), (-HALF, HALF)),
    "v": ((0, HALF), (HALF, -HALF), (-HALF, -HALF)),
    "P": (
        (-ARM, -HALF), (ARM, -HALF), (ARM, -ARM), (HALF, -ARM), (HALF, ARM), (ARM, ARM),
        (ARM, HALF), (-ARM, HALF), (-ARM, ARM), (-HALF, ARM), (-HALF, -ARM), (-ARM, -ARM),
    ),
    "X": (
        (-HALF / 2, -HALF), (0, -HALF / 2), (HALF / 2, -HALF), (HALF, -HALF / 2), (HALF / 2, 0), (HALF, HALF / 2),
        (HALF / 2, HALF), (0, HALF / 2), (-HALF / 2, HALF), (-HALF, HALF / 2), (-HALF / 2, 0), (-HALF, -HALF / 2),
    ),
}  # fmt: skip
"""Corners, with y downwards; the circle `o` has none."""


def outline(mark: str, size: float) -> str:
    """Return the path of a mark, `size` points across, around the point 0 0."""
    if mark == "o":
        half = size / 2
        return f"M{-half:g} 0A{half:g} {half:g} 0 1 1 {half:g} 0A{half:g} {half:g} 0 1 1 {-half:g} 0Z"
    return "M" + "L".join(f"{x * size:.3g} {y * size:.3g}" for x, y in POLYGONS[mark]) + "Z"


def sheet_as_svg(sheet: Sheet, inches: float, page: tuple[float, float] | None = None) -> bytes:
    """Return a sheet as an SVG so many inches wide, in the middle of a page where there is one."""
    pixels = sheet.width / inches
    wide, high = (inches, sheet.height / pixels) if page is None else page
    across, down = wide * pixels, high * pixels
    left, top = (sheet.width - across) / 2, (sheet.height - down) / 2
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{72 * wide:g}pt" height="{72 * high:g}pt" '
        f'viewBox="{left:g} {top:g} {across:g} {down:g}" font-family="{FONTS}">'
    )
    white = shape_element(Rect(left, top, across, down, PAPER))
    return "\n".join([head, white, *map(shape_element, sheet.shapes), "</svg>", ""]).encode("utf-8", "backslashreplace")


def shape_element(shape: Shape) -> str:
    """Return one shape as an element of SVG."""
    match shape:
        case Rect(x, y, width, height, fill, stroke, dashed):
            edge = f' stroke="{stroke}" stroke-width="{1 if dashed else 1.5}"' if stroke else ""
            edge += ' stroke-dasharray="4 3"' if dashed else ' rx="5"' if stroke else ""
            return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"{edge}/>'
        case Curve(path, x, y, fill, edge):
            dashes = f' stroke="{edge}" stroke-dasharray="4 3"' if edge else ""
            look = f'fill="{fill}"{dashes}' if fill else f'fill="none" stroke="{QUIET}" stroke-width="1.3"'
            return f'<path transform="translate({x:g} {y:g})" d="{path}" {look}/>'
        case Label(x, y, text, symbol, size, colour, turned):
            bold = (
                f'<tspan font-size="12" font-weight="bold" font-style="italic">{escape(symbol, quote=False)}</tspan> '
            )
            place = (
                f'text-anchor="middle" transform="translate({x:g} {y:g}) rotate(-90)"'
                if turned
                else f'x="{x:g}" y="{y:g}"'
            )
            said = f"{bold if symbol else ''}{escape(printable(text), quote=False)}"
            return f'<text {place} font-size="{size:g}" fill="{colour}">{said}</text>'
