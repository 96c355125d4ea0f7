"""Drawings of Matplotlib: a chart as a figure, the one look of all figures, their fonts, and the bytes of a file.

They are for files of other formats than SVG, for notebooks and for the plots of a sweep. Drawings are made on
`matplotlib.figure.Figure` alone, so that equal comparisons give equal bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.patches import FancyBboxPatch, PathPatch, Rectangle
from matplotlib.path import Path as Line
from matplotlib.textpath import text_to_path

from attn_exp.report.charts.chart import (
    CLOSED,
    QUIET,
    Axis,
    Box,
    Chart,
    Curve,
    Heat,
    Label,
    Plot,
    Rect,
    Scale,
    Shape,
    Sheet,
    Stroke,
    Ticks,
    Words,
)
from attn_exp.report.escapes import label, visible

SCALE = "scale"
"""The label of the axes that explain the colours."""


def figure_of(chart: Chart) -> Figure:
    """Return a chart as a figure, in the style that holds now."""
    figure = Figure(figsize=(chart.width, chart.height))
    for part in chart.parts:
        match part:
            case Words():
                words(figure, part)
            case Heat():
                heat(axes_at(figure, part.box), part)
            case Scale():
                scale(axes_at(figure, part.box), part)
            case Plot():
                plot(axes_at(figure, part.box), part)
    return figure


def axes_at(figure: Figure, box: Box) -> Axes:
    """Add axes at a place in inches."""
    width, height = figure.get_size_inches()
    return figure.add_axes((box.left / width, box.bottom / height, box.width / width, box.height / height))


def words(figure: Figure, part: Words) -> None:
    """Write a text upon the sheet."""
    width, height = figure.get_size_inches()
    text = figure.text(part.at[0] / width, part.at[1] / height, part.text, parse_math=False)
    text.set(fontsize=part.size, linespacing=1.1, ha=part.side, va="bottom")
    if part.turned:
        text.set(rotation=90, ha="left", va="center")


def heat(axes: Axes, part: Heat) -> None:
    """Draw a matrix as a heat map, with its numbers where it has a form for them."""
    norm = PowerNorm(part.gamma, 0, part.end)
    matrix, colours = part.matrix, colormaps[part.colours]
    if part.closed is not None:
        matrix, colours = np.where(part.closed, -1.0, matrix), colours.with_extremes(under=CLOSED)
    axes.imshow(matrix, norm=norm, cmap=colours, aspect="auto", interpolation="nearest")
    axes.spines[["left", "bottom"]].set_visible(False)
    without_names(axes)
    axes.tick_params(length=0, pad=2)
    name_ticks(axes.xaxis, part.columns)
    name_ticks(axes.yaxis, part.rows)
    axes.set_title(part.title, loc=part.title_side, parse_math=False)
    for (row, column), value in np.ndenumerate(part.matrix) if part.form else ():
        if part.closed is not None and part.closed[row, column]:
            continue
        ink = "white" if value > 0.6 * part.end else "black"
        axes.text(column, row, format(value, part.form), ha="center", va="center", color=ink, fontsize=7)


def scale(axes: Axes, part: Scale) -> None:
    """Draw the colours from 0 upwards, with numbers at the right."""
    axes.set_label(SCALE)
    shades, extent = np.linspace(0, part.end, 256)[:, None], (0, 1, 0, part.end)
    norm = PowerNorm(part.gamma, 0, part.end)
    axes.imshow(shades, norm=norm, cmap=part.colours, aspect="auto", origin="lower", extent=extent)
    axes.tick_params(labelbottom=False, bottom=False, labelleft=False, left=False, labelright=True, right=True)
    axes.spines[["top", "right"]].set_visible(True)
    name_ticks(axes.yaxis, part.ticks)
    without_names(axes)
    axes.set_title(part.title, loc="left")


def without_names(axes: Axes) -> None:
    """Say that these axes name neither x nor y, or else the place for the names is worked out from every tick."""
    axes.xaxis.set_label_coords(0.5, 0)
    axes.yaxis.set_label_coords(0, 0.5)


def name_ticks(axis: Any, ticks: Ticks) -> None:
    """Put names at the places of an axis."""
    axis.set_ticks(ticks.places, ticks.names, rotation=90 if ticks.turned else 0, parse_math=False)


def plot(axes: Axes, part: Plot) -> None:
    """Draw strokes, their axes and the legend above."""
    if part.x.log:
        axes.set_xscale("log")
        axes.minorticks_off()
    for stroke in part.strokes:
        draw_stroke(axes, stroke)
    limit(axes.set_xlim, axes.set_xlabel, axes.xaxis, part.x)
    limit(axes.set_ylim, axes.set_ylabel, axes.yaxis, part.y)
    legend = axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=part.columns, borderaxespad=0.2, labelspacing=0.3
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def draw_stroke(axes: Axes, stroke: Stroke) -> None:
    """Draw the line and the marks of one stroke."""
    axes.plot(
        stroke.x, stroke.y, color=stroke.colour, linewidth=stroke.width,
        linestyle="none" if not stroke.width else ":" if stroke.dotted else "-", marker=stroke.mark or "none",
        markersize=stroke.size, alpha=stroke.opacity, label=stroke.label or "_",
        drawstyle="steps-post" if stroke.steps else "default",
    )  # fmt: skip


def limit(set_limits: Any, set_name: Any, axis: Any, wanted: Axis) -> None:
    """Let an axis run from low to high, with its ticks and its name."""
    name_ticks(axis, wanted.ticks)
    set_limits(wanted.low, wanted.high)
    set_name(wanted.name, parse_math=False)


WIDTH = 6.3
"""Inches: the text width of an A4 page."""

STYLE = Path(__file__).with_name("paper.mplstyle")
DRAWN_AT = 100
"""Dots per inch of a drawing that is shown as large as it is drawn; with twice as many it is shown twice as large."""

CELLS_AS_THEY_ARE = 10_000
"""Maps of up to so many cells are small enough to be stored cell by cell."""


def look(further: Mapping[str, Any] = MappingProxyType({})) -> AbstractContextManager[None]:
    """Return the context to draw in: our style upon Matplotlib's defaults, so that no user's settings change a figure.

    `rc_context` would take the file itself, but first reads every style that comes with Matplotlib.
    """
    style: dict[Any, Any] = {**matplotlib.rc_params_from_file(STYLE), **further}
    del style["backend"]  # a choice of windows, which no figure needs
    return matplotlib.rc_context(style)


def encoded(figure: Figure, form: str) -> bytes:
    """Return the bytes of a figure as `png`, `svg` or `pdf`, equal for equal figures."""
    with look():
        return saved(figure, form)


def saved(figure: Figure, form: str) -> bytes:
    """Return the bytes of a figure in the look that holds now."""
    stream, zoom = BytesIO(), figure.dpi / DRAWN_AT
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None, "ModDate": None}}
    FigureCanvasAgg(figure)
    sharpen(figure, "none" if form == "svg" else "nearest")
    if form == "pdf" and zoom != 1:
        return larger_pdf(figure, zoom, dates["pdf"])
    options: dict[str, Any] = {"pil_kwargs": {"compress_level": 2}} if form == "png" else {}  # faster, as small
    figure.savefig(stream, format=form, dpi=160 * zoom, metadata=dates.get(form), **options)
    if form != "svg" or zoom == 1:
        return stream.getvalue()
    return re.sub(  # the picture is shown so many times larger, and its coordinates stay
        rb'(?:width|height)="([\d.]+)pt"',
        lambda size: size[0].replace(size[1], b"%g" % (zoom * float(size[1]))),
        stream.getvalue(),
        count=2,
    )


def larger_pdf(figure: Figure, zoom: float, dates: Mapping[str, None]) -> bytes:
    """Return a figure as PDF that is shown so many times larger; Matplotlib's own way has no word for that."""
    pdf: Any = import_module("matplotlib.backends.backend_pdf")  # few are larger; it has no types
    (width, height), stream = figure.get_size_inches(), BytesIO()
    file = pdf.PdfFile(stream, metadata=dates)
    file.newPage(width * zoom, height * zoom)
    dots = 160 * zoom
    file.output(zoom, 0, 0, zoom, 0, 0, pdf.Op.concat_matrix)
    renderer = pdf.MixedModeRenderer(figure, width, height, dots, pdf.RendererPdf(file, dots, height, width))
    figure.set_dpi(72)  # a PDF counts in points
    figure.draw(renderer)
    renderer.finalize()
    figure.set_dpi(DRAWN_AT * zoom)
    file.finalize()
    content = stream.getvalue()
    file.close()
    return content


def sharpen(figure: Figure, interpolation: str) -> None:
    """Let maps of few cells be stored cell by cell, with edges sharp at any size, or as pixels.

    Browsers draw the cells of an SVG as they are; some viewers of PDF would smooth them.
    """
    for image in (image for axes in figure.axes for image in axes.images):
        if image.get_size()[0] * image.get_size()[1] <= CELLS_AS_THEY_ARE:
            image.set_interpolation(interpolation)


FIRST = "DejaVu Sans"
"""The font that comes with matplotlib: everywhere the same."""

FURTHER = (
    "Noto Sans", "Source Han Sans", "WenQuanYi", "Droid Sans Fallback", "IPAGothic", "Arial Unicode", "PingFang",
    "Hiragino", "Microsoft YaHei", "SimHei", "Malgun", "Segoe UI", "Noto Emoji", "Symbola", "Unifont",
)  # fmt: skip
"""How the names of fonts begin that hold other scripts; used where installed and needed."""


def installed() -> list[str]:
    """Return the names of the fonts that are there, the one that comes with matplotlib first."""
    return sorted({entry.name for entry in fontManager.ttflist}, key=lambda name: (name != FIRST, name))


def fonts_for(texts: Iterable[str], first: str = FIRST) -> list[str]:
    """Return the fonts, first choice first, that draw these texts as far as the machine can."""
    fonts = list(dict.fromkeys((first, FIRST)))
    missing = {letter for text in texts for letter in text if not any(has(font, letter) for font in fonts)}
    for name in sorted(
        {entry.name for entry in fontManager.ttflist if entry.name.startswith(FURTHER)} if missing else ()
    ):
        drawn = {letter for letter in missing if has(name, letter)}
        if drawn:
            fonts.append(name)
            missing -= drawn
    return fonts


def has(font: str, character: str) -> bool:
    """Say whether a font can draw a character."""
    return character.isascii() or bool(get_font(findfont(font)).get_char_index(ord(character)))


def drawable(text: str) -> str:
    """Return the text on one line, with each character that no font in use can draw as its number, such as U+4F60."""
    fonts = matplotlib.rcParams["font.family"]
    return "".join(
        letter if any(has(font, letter) for font in fonts) else f"U+{ord(letter):04X}" for letter in visible(text)
    )


def measured(text: str) -> float:
    """Return the width of a text at 8 points in the fonts in use, in inches."""
    return text_to_path.get_text_width_height_descent(text, FontProperties(size=8), False)[0] / 72


def labels(tokens: Sequence[str]) -> list[str]:
    """Return tokens as labels that the fonts in use can draw."""
    return [drawable(label(token)) for token in tokens]


def sheet_as_figure(sheet: Sheet, wide: float) -> Figure:
    """Return a sheet as a drawing so many inches wide."""
    pixel = wide / sheet.width
    drawing = Figure(figsize=(wide, pixel * sheet.height))
    axes = drawing.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, sheet.width), ylim=(sheet.height, 0))
    axes.set_axis_off()
    for shape in sheet.shapes:
        draw_shape(axes, shape, 72 * pixel)
    return drawing


def draw_shape(axes: Axes, shape: Shape, points: float) -> None:
    """Draw one shape; a pixel is so many points."""
    match shape:
        case Rect(x, y, width, height, colour, stroke, dashed):
            look: dict[str, Any] = {"facecolor": colour, "edgecolor": stroke or "none", "linewidth": 1.3 * points}
            if stroke and not dashed:
                rounded = f"round,pad=0,rounding_size={5}"
                axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=rounded, mutation_aspect=1, **look))
            else:
                axes.add_patch(Rectangle((x, y), width, height, linestyle="--" if dashed else "-", **look))
        case Curve(path, x, y, colour, edge):
            stroke = edge or ("none" if colour else QUIET)
            line = {"facecolor": colour or "none", "edgecolor": stroke, "linewidth": 1.2 * points}
            axes.add_patch(PathPatch(Line(*path_of(path, x, y)), linestyle="--" if edge else "-", **line))
        case Label():
            write_label(axes, shape, points)


def write_label(axes: Axes, text: Label, points: float) -> None:
    """Write a text, after its symbol where it has one."""
    place, look = text.x, dict[str, Any](color=text.colour, parse_math=False)
    if text.symbol:
        bold: dict[str, Any] = {"fontsize": 12 * points, "fontweight": "bold", "fontstyle": "italic"}
        axes.text(place, text.y, text.symbol, **bold, **look)
        place += 1.5 * measured(text.symbol) * 72 * 1.12 + 4
    if text.turned:
        look |= {"rotation": 90, "ha": "center", "va": "center"}
    axes.text(place, text.y, drawable(text.text), fontsize=text.size * points, **look)


def path_of(path: str, x: float, y: float) -> tuple[list[tuple[float, float]], list[int]]:
    """Return the points and the codes of a path in SVG's letters."""
    points, codes = list[tuple[float, float]](), list[int]()
    for letter, numbers in re.findall(r"([MHVCvlhz])([^A-Za-z]*)", path):
        values = [float(number) for number in re.findall(r"-?[\d.]+", numbers)]
        last = points[-1] if points else (x, y)
        added = [points[0]] if letter == "z" else list(points_of(letter, values, last, (x, y)))
        points += added
        kind = {"M": Line.MOVETO, "C": Line.CURVE4, "z": Line.CLOSEPOLY}.get(letter, Line.LINETO)
        codes += [int(kind)] * len(added)
    return points, codes


def points_of(
    letter: str, values: list[float], last: tuple[float, float], origin: tuple[float, float]
) -> Iterator[tuple[float, float]]:
    """Yield the points that one letter of a path leads to."""
    if letter in "MC":
        yield from ((origin[0] + values[at], origin[1] + values[at + 1]) for at in range(0, len(values), 2))
    elif letter == "l":
        yield last[0] + values[0], last[1] + values[1]
    else:
        across = {"H": origin[0] + values[0], "h": last[0] + values[0]}.get(letter, last[0])
        yield across, {"V": origin[1] + values[0], "v": last[1] + values[0]}.get(letter, last[1])
