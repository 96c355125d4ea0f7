"""Draw charts as Matplotlib figures in a common style, choose fonts, and encode figures.

Matplotlib is needed for formats other than SVG, for a font in the settings, and for notebooks. Only
`matplotlib.figure.Figure` is used, without pyplot, so that equal comparisons give equal bytes.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from io import BytesIO
from types import MappingProxyType
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, fontManager, get_font
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path as Line

from attn_exp.report.charts.chart import Chart, Path, Picture, Rect, Shape, Text, width
from attn_exp.report.charts.layout import shapes_of
from attn_exp.report.escapes import visible


def draw_chart(chart: Chart) -> Figure:
    """Return a chart as a Matplotlib figure of the size in which it is shown; it has a single Axes."""
    page_width, page_height = chart.page or (chart.width, chart.height)
    figure = Figure(figsize=(page_width * chart.zoom, page_height * chart.zoom))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    for shape in shapes_of(chart):
        draw_shape(axes, shape, chart.zoom)
    # the chart is in the middle of the page; coordinates are in points, and y increases downwards
    left, top = 36 * (chart.width - page_width), 36 * (chart.height - page_height)
    axes.set(xlim=(left, left + 72 * page_width), ylim=(top + 72 * page_height, top), aspect="auto")
    return figure


def draw_shape(axes: Axes, shape: Shape, zoom: float) -> None:
    match shape:
        case Rect():
            corners = f"round,pad=0,rounding_size={shape.radius}" if shape.radius else "square,pad=0"
            properties: dict[str, Any] = {"boxstyle": corners, **patch_properties(shape, zoom)}
            axes.add_patch(FancyBboxPatch(shape[:2], shape.width, shape.height, mutation_aspect=1, **properties))
        case Path():
            path = parse_path(shape.path, (shape.x, shape.y))
            axes.add_patch(PathPatch(path, alpha=shape.opacity, **patch_properties(shape, zoom)))
        case Picture():
            extent = (shape.x, shape.x + shape.width, shape.y + shape.height, shape.y)
            axes.imshow(shape.pixels, extent=extent, interpolation="nearest")
        case Text():
            write_text(axes, shape, zoom)


def patch_properties(shape: Rect | Path, zoom: float) -> dict[str, Any]:
    style = (0, [length / shape.line for length in shape.dashes]) if shape.dashes else "-"
    edge = {"edgecolor": shape.stroke or "none", "linewidth": shape.line * zoom if shape.stroke else 0}
    return {"facecolor": shape.fill, "linestyle": style, "clip_on": False, **edge}


def parse_path(path: str, origin: tuple[float, float] = (0, 0)) -> Line:
    """Return a path in SVG syntax as a Matplotlib path, moved by `origin`."""
    points, codes, start = [np.zeros(2)], list[int](), np.zeros(2)
    for letter, numbers in re.findall("([MLCmlcz])([^MLCmlcz]*)", path):
        if letter == "z":
            new_points = [start]
        else:
            coordinates = np.array(numbers.split(), float).reshape(-1, 2)
            new_points = list(coordinates + points[-1] if letter.islower() else coordinates)
        points += new_points
        codes += [int(KINDS[letter.lower()])] * len(new_points)
        start = points[-1] if letter in "Mm" else start
    return Line(np.array(points[1:]).reshape(-1, 2) + origin, codes)


KINDS = {"m": Line.MOVETO, "l": Line.LINETO, "c": Line.CURVE4, "z": Line.CLOSEPOLY}


def write_text(axes: Axes, text: Text, zoom: float) -> None:
    x, properties = text.x, dict[str, Any](color=text.colour, fontsize=text.size * zoom, parse_math=False)
    if text.symbol:
        axes.text(x, text.y, text.symbol, fontweight="bold", fontstyle="italic", **properties)
        x += 72 * (1.12 * width(text.symbol, text.size) + width(" ", text.size))
    rotation: dict[str, Any] = {"rotation": 90, "rotation_mode": "anchor"} if text.turned else {}
    axes.text(x, text.y, replace_missing(text.text), ha=text.side, va="baseline", **rotation, **properties)


STYLE = pathlib.Path(__file__).with_name("paper.mplstyle")
UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None, "ModDate": None}}
"""The metadata of each format: it has no time, so that equal figures give equal bytes."""


def style_context(further: Mapping[str, Any] = MappingProxyType({}), zoom: float = 1.0) -> AbstractContextManager[None]:
    """Return a context in which Matplotlib has our style and otherwise its defaults, whatever the user's settings.

    Letters, lines and paddings are `zoom` times as large as in the style file. `rc_context` would accept this file
    itself, but would first read every style that comes with Matplotlib.
    """
    style: dict[Any, Any] = dict(matplotlib.rc_params_from_file(STYLE))
    own_style = matplotlib.rc_params_from_file(STYLE, use_default_template=False)
    style |= {key: value * zoom for key, value in own_style.items() if isinstance(value, float)}
    style["axes.titley"] = 1.0  # otherwise Matplotlib looks for space above every title
    del style["backend"]  # selects a GUI, which no figure needs
    return matplotlib.rc_context(style | dict(further))


def encode_figure(figure: Figure, form: str) -> bytes:
    """Return the file of a figure in the format `png`, `svg` or `pdf`; equal figures give equal bytes."""
    stream = BytesIO()
    options: dict[str, Any] = {"pil_kwargs": {"compress_level": 2}} if form == "png" else {}
    with style_context():
        FigureCanvasAgg(figure)
        figure.savefig(stream, format=form, dpi=160, metadata=UNDATED.get(form), **options)
    return stream.getvalue()


FIRST = "DejaVu Sans"
"""The font that comes with Matplotlib and is the same everywhere."""

FURTHER = (
    "Noto Sans", "Source Han Sans", "WenQuanYi", "Droid Sans Fallback", "IPAGothic", "Arial Unicode", "PingFang",
    "Hiragino", "Microsoft YaHei", "SimHei", "Malgun", "Segoe UI", "Noto Emoji", "Symbola", "Unifont",
)  # fmt: skip
"""Beginnings of the names of fonts for other scripts, which are used if they are needed and installed."""


def installed_fonts() -> list[str]:
    return sorted({entry.name for entry in fontManager.ttflist}, key=lambda name: (name != FIRST, name))


def choose_fonts(texts: Iterable[str], first: str = FIRST) -> list[str]:
    """Return the fonts to use for these strings, in order of preference.

    Fonts other than `first` and `FIRST` are included only if `FIRST` lacks a letter.
    """
    fonts = list(dict.fromkeys((first, FIRST)))
    is_known = all(has_letter(FIRST, letter) for letter in set("".join(texts)))
    return fonts if is_known else [*fonts, *(name for name in installed_fonts() if name.startswith(FURTHER))]


def has_letter(font: str, character: str) -> bool:
    return character.isascii() or bool(get_font(findfont(font)).get_char_index(ord(character)))


def replace_missing(text: str) -> str:
    """Return a string on one line, with a square in place of each character that no font in use has."""
    fonts = matplotlib.rcParams["font.family"]
    return "".join(letter if any(has_letter(font, letter) for font in fonts) else "□" for letter in visible(text))
