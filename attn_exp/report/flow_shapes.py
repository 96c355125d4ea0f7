"""The picture of the flow as plain shapes, with colours of their own: for files, which have no style sheet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from attn_exp.errors import printable
from attn_exp.report.charts.svg import FONTS
from attn_exp.report.flow_boxes import BOLD, LETTERS, Box, Flow

INK, QUIET, RULE, WASH, PAPER = "#1b1f24", "#59636e", "#b6bec7", "#f4f6f8", "#ffffff"
HUES = {
    "x": "#66717d", "w": "#66717d", "q": "#0072b2", "k": "#d55e00", "v": "#009e73",
    "s": "#b0579a", "a": "#d99a00", "c": "#2f9fd8", "y": "#7a5af0",
}  # fmt: skip
"""The colours of stages, as the page has them."""

TITLE, MARGIN = 24, 2
"""Pixels: the height of the title above a picture, and what is left free around it."""


class Rect(NamedTuple):
    """A rectangle; without a `stroke` it has no edge."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str = ""
    dashed: bool = False


class Curve(NamedTuple):
    """A path in the letters of SVG, from `x` and `y` on; with a `fill` it is an area, with a dashed `edge` if any."""

    path: str
    x: float = 0
    y: float = 0
    fill: str = ""
    edge: str = ""


class Words(NamedTuple):
    """A text on a line, after a `symbol` in bold italics; one that is turned reads upwards around its middle."""

    x: float
    y: float
    text: str
    symbol: str = ""
    size: float = LETTERS
    colour: str = INK
    turned: bool = False


Shape = Rect | Curve | Words


class Sheet(NamedTuple):
    """Shapes on a sheet of so many pixels."""

    width: float
    height: float
    shapes: tuple[Shape, ...]


def sheet(flows: Sequence[tuple[str, Flow]], across: int) -> Sheet:
    """Return pictures under their titles, so many side by side."""
    shapes, top, wide = list[Shape](), 0.0, max(flow.width for _, flow in flows) + 2 * MARGIN
    for start in range(0, len(flows), across):
        line = flows[start : start + across]
        for place, (title, flow) in enumerate(line):
            corner = place * wide + MARGIN, top + TITLE
            shapes.append(Words(corner[0], top + 17, shortened(title), size=12))
            shapes += [moved(shape, *corner) for shape in shapes_of(flow)]
        top += TITLE + max(flow.height for _, flow in line) + MARGIN
    return Sheet(wide * min(across, len(flows)), top, tuple(shapes))


def shortened(title: str, most: int = 46) -> str:
    """Return a title that fits above a picture."""
    return title if len(title) <= most else f"{title[: most - 1]}…"


def moved(shape: Shape, x: float, y: float) -> Shape:
    """Return a shape at another place."""
    return shape._replace(x=shape.x + x, y=shape.y + y)


def shapes_of(flow: Flow) -> Iterator[Shape]:
    """Yield the shapes of one picture, those below others first."""
    if flow.frame:
        top, bottom, words = flow.frame
        yield Rect(28, top, 180, bottom - top, WASH, RULE, dashed=True)
        yield Words(18, (top + bottom) / 2, words, colour=QUIET, turned=True)
    for arrow in flow.arrows:
        yield Curve(arrow.path)
        yield Curve(arrow.tip, fill=QUIET)
        if arrow.label:
            yield Words(arrow.x, arrow.y, arrow.label, colour=QUIET)
    for box in flow.boxes:
        yield from (moved(shape, box.left, box.top) for shape in box_shapes(box))


def box_shapes(box: Box) -> Iterator[Shape]:
    """Yield the shapes of one stage, from its upper left corner."""
    hue = HUES[box.hue]
    fill = mixed(hue, 0.16)
    if box.heads > 1 and not box.lines:
        yield Rect(4, 4, box.width, box.height, fill, hue)
    yield Rect(0, 0, box.width, box.height, fill, hue)
    if box.lines:
        yield Words(7, 15, box.heading, box.symbol)
        yield from (Words(7, 15 + 14 * place, line) for place, line in enumerate(box.lines, start=1))
        return
    plain = len(box.size) > 9
    if not plain:
        yield from icon(box, 28)
    yield Words(8 if plain else 40, 17, box.word, box.symbol)
    yield Words(8 if plain else 40, 32, box.size)


def icon(box: Box, side: int) -> Iterator[Rect]:
    """Yield the cells of a small picture of a matrix, every second part of its columns darker."""
    unit = min(side / box.rows, side / box.columns, 7)
    unit = int(unit) if unit >= 1 else unit
    wide, tall = max(int(unit * box.columns), 3), max(int(unit * box.rows), 3)
    top, hue = (box.height - tall) // 2, HUES[box.hue]
    yield Rect(7, top, wide, tall, mixed(hue, 0.55))
    if 1 < box.parts <= 16 and wide >= box.parts:
        share = wide // box.parts
        yield from (Rect(7 + part * share, top, share, tall, mixed(hue, 0.82)) for part in range(1, box.parts, 2))
    if unit > 2:
        yield from (Rect(7, top + row * unit - 0.5, wide, 1, PAPER) for row in range(1, box.rows))
        yield from (Rect(7 + column * unit - 0.5, top, 1, tall, PAPER) for column in range(1, box.columns))


def mixed(colour: str, share: float) -> str:
    """Return a colour that is this share of another, and else white."""
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(255 + share * (part - 255)):02x}" for part in parts)


def as_svg(sheet: Sheet, inches: float, page: tuple[float, float] | None = None) -> bytes:
    """Return a sheet as an SVG so many inches wide, in the middle of a page where there is one."""
    pixels = sheet.width / inches
    wide, high = (inches, sheet.height / pixels) if page is None else page
    across, down = wide * pixels, high * pixels
    left, top = (sheet.width - across) / 2, (sheet.height - down) / 2
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{72 * wide:g}pt" height="{72 * high:g}pt" '
        f'viewBox="{left:g} {top:g} {across:g} {down:g}" font-family="{FONTS}">'
    )
    white = element(Rect(left, top, across, down, PAPER))
    return "\n".join([head, white, *map(element, sheet.shapes), "</svg>", ""]).encode("utf-8", "backslashreplace")


def element(shape: Shape) -> str:
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
        case Words(x, y, text, symbol, size, colour, turned):
            bold = f'<tspan font-size="{BOLD}" font-weight="bold" font-style="italic">{escape(symbol)}</tspan> '
            place = (
                f'text-anchor="middle" transform="translate({x:g} {y:g}) rotate(-90)"'
                if turned
                else f'x="{x:g}" y="{y:g}"'
            )
            said = f"{bold if symbol else ''}{escape(printable(text))}"
            return f'<text {place} font-size="{size:g}" fill="{colour}">{said}</text>'
