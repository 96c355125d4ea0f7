"""Charts as plain data, and two renderers that draw the same picture.

`chart` has the classes of the parts of a chart: maps, plots and shapes. `layout` places maps and axes on a sheet, and
turns a chart into rectangles, paths, text and pictures. `chart_as_svg` writes these as SVG, so that a page does not
wait for a plotting library, and text stays text. `matplotlib_figure` draws them for `pdf` and `png`. The width of text
comes from a table, so the layout is the same on every machine.
"""

from __future__ import annotations

import base64
from html import escape

from attn_exp.errors import printable
from attn_exp.report.charts.chart import PAPER, Chart, Path, Picture, Rect, Shape, Text, is_known, width
from attn_exp.report.charts.layout import as_text, shapes_of
from attn_exp.report.pixels import encode_png

FONTS = "DejaVu Sans, Verdana, sans-serif"
SPACES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" xml:space="preserve"'
ANCHORS = {"left": "", "center": ' text-anchor="middle"', "right": ' text-anchor="end"'}


def chart_as_svg(chart: Chart) -> bytes:
    page_width, page_height = chart.page or (chart.width, chart.height)
    page = Rect(
        36 * (chart.width - page_width), 36 * (chart.height - page_height), 72 * page_width, 72 * page_height, PAPER
    )
    size = f'width="{as_text(page.width * chart.zoom)}pt" height="{as_text(page.height * chart.zoom)}pt"'
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        f'<svg {SPACES} {size} viewBox="{" ".join(map(as_text, page[:4]))}" font-family="{FONTS}">',
        *map(element, (page, *shapes_of(chart))),
        "</svg>\n",
    ]
    return "\n".join(lines).encode("utf-8", "backslashreplace")


def element(shape: Shape, styled: bool = True) -> str:
    """Return a shape as an SVG element; if not `styled`, without colours, which the style sheet of a page then sets."""
    match shape:
        case Rect():
            radius = f' rx="{shape.radius:g}"' if shape.radius else ""
            style = f"{radius}{paint_attributes(shape)}" if styled else ""
            return f"<rect {position_attributes(shape)}{style}/>"
        case Path() if not styled:
            line = ' fill="none"' if shape.fill == "none" else ""
            return f'<path d="{shape.path}"{line}/>'
        case Path():
            opacity = f' opacity="{shape.opacity:g}"' if shape.opacity < 1 else ""
            transform = f' transform="translate({shape.x:g} {shape.y:g})"' if shape.x or shape.y else ""
            return f'<path d="{shape.path}"{transform}{paint_attributes(shape)}{opacity} stroke-linejoin="round"/>'
        case Picture():
            pixels = shape.pixels if (shape.pixels[:, :, 3] < 255).any() else shape.pixels[:, :, :3]
            source = base64.b64encode(encode_png(pixels)).decode()
            rendering = 'preserveAspectRatio="none" style="image-rendering:crisp-edges;image-rendering:pixelated"'
            return f'<image {position_attributes(shape)} {rendering} xlink:href="data:image/png;base64,{source}"/>'
        case Text():
            return text_element(shape, styled)


def position_attributes(shape: Rect | Picture) -> str:
    x, y, width, height = map(as_text, shape[:4])
    return f'x="{x}" y="{y}" width="{width}" height="{height}"'


def paint_attributes(shape: Rect | Path) -> str:
    dashes = f' stroke-dasharray="{shape.dashes[0]:g} {shape.dashes[1]:g}"' if shape.dashes else ""
    edge = f' stroke="{shape.stroke}" stroke-width="{shape.line:g}"{dashes}'
    return f' fill="{shape.fill}"{edge if shape.stroke else ""}'


def text_element(text: Text, styled: bool) -> str:
    """Return text as an SVG element; if `styled`, it is as wide as planned in every font."""
    x, y = as_text(text.x), as_text(text.y)
    position = f'transform="translate({x} {y})rotate(-90)"' if text.turned else f'x="{x}" y="{y}"'
    text_width = 72 * width(text.text, text.size) if styled and not text.symbol and is_known(text.text) else 0
    length = f' textLength="{as_text(text_width)}" lengthAdjust="spacingAndGlyphs"' if text_width else ""
    symbol = escape(text.symbol, quote=False)
    style = ' font-weight="bold" font-style="italic"' if styled else ""
    tspan = f"<tspan{style}>{symbol}</tspan> " if symbol else ""
    fill = f' fill="{text.colour}"' if text.colour != "#000000" else ""
    attributes = f' font-size="{text.size:g}"{fill}' if styled else ""
    content = escape(printable(text.text), quote=False)
    return f"<text {position}{attributes}{ANCHORS[text.side]}{length}>{tspan}{content}</text>"
