"""What all drawings share: one style, colours, axes in inches, names on axes, and the bytes of a file.

Drawings are made on `matplotlib.figure.Figure` alone, in inches, so that no label is cut off and equal comparisons give
equal bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attn_exp.report.lettering import drawable, fitted
from attn_exp.report.plain import label

Array = NDArray[Any]

WIDTH = 6.3
"""Inches: the text width of an A4 page."""

STYLE = Path(__file__).with_name("paper.mplstyle")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, told apart by the colour-blind."""

DRAWN_AT = 100
"""Dots per inch of a drawing that is shown as large as it is drawn; with twice as many it is shown twice as large."""

FONT_SIZE = 8
"""Points: the size of text in a drawing."""

MARKERS = "osD^vPX"
LINE = 0.17
"""Inches: the height of a line of text."""

NARROW = 4.5
"""Inches: figures up to this width have one column of text."""

CELLS_AS_THEY_ARE = 10_000
"""Maps of up to so many cells are small enough to be stored cell by cell."""

NUMBERS_UP_TO = 8
"""Cells hold their number where a matrix has at most this many rows and columns."""


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
    return larger_svg(stream.getvalue(), zoom) if form == "svg" else stream.getvalue()


def larger_svg(svg: bytes, zoom: float) -> bytes:
    """Return a picture that is shown so many times larger: its coordinates stay."""
    if zoom == 1:
        return svg
    return re.sub(rb'(?:width|height)="([\d.]+)pt"', lambda size: enlarged(size, zoom), svg, count=2)


def enlarged(size: re.Match[bytes], zoom: float) -> bytes:
    """Return `width="2pt"` or `height="2pt"` with so many times as many points."""
    return size[0].replace(size[1], b"%g" % (zoom * float(size[1])))


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


def labels(tokens: Sequence[str]) -> list[str]:
    """Return tokens as labels that the fonts in use can draw."""
    return [drawable(label(token)) for token in tokens]


def axes_at(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """Add axes at left, bottom, width and height in inches."""
    width, height = figure.get_size_inches()
    return figure.add_axes((box[0] / width, box[1] / height, box[2] / width, box[3] / height))


def heat(
    axes: Axes, matrix: Array, top: float, colours: str, cell: float, form: str = ".2f", most: int = NUMBERS_UP_TO
) -> Any:
    """Draw a matrix as a heat map from 0 to `top`, with its numbers where cells of this width in inches hold them."""
    image = axes.imshow(matrix, vmin=0, vmax=top, cmap=colours, aspect="auto", interpolation="nearest")
    axes.spines[["left", "bottom"]].set_visible(False)
    without_labels(axes)
    if max(matrix.shape) <= most and cell > 0.06 * len(format(0.01, form)):
        for (row, column), value in np.ndenumerate(matrix):
            ink = "white" if value > 0.6 * top else "black"
            axes.text(column, row, format(value, form), ha="center", va="center", color=ink, fontsize=7)
    return image


def without_labels(axes: Axes) -> None:
    """Say that these axes name neither x nor y, or else the place for the names is worked out from every tick."""
    axes.xaxis.set_label_coords(0.5, 0)
    axes.yaxis.set_label_coords(0, 0.5)


def name_ticks(axes: Axes, rows: list[str], columns: list[str], slanted: bool, size: tuple[float, float]) -> None:
    """Name the rows and columns of a heat map, as many as can be read."""
    axes.tick_params(length=0, pad=2)
    name_axis(axes.xaxis, columns, slanted, size[0])
    name_axis(axes.yaxis, rows, True, size[1])


def name_axis(axis: Any, names: list[str], slanted: bool, length: float) -> None:
    """Put names along an axis `length` inches long, leaving out evenly what would overlap."""
    places = range(0, len(names), max(1, math.ceil(0.12 * len(names) / length)))
    turn = 90 if slanted and axis.axis_name == "x" else 0
    axis.set_ticks(places, [names[place] for place in places], rotation=turn, parse_math=False)


def plot_below_legend(entries: int, bottom: float, width: float, height: float | None) -> tuple[Figure, Axes]:
    """Return a figure, as high as is usual or as is said, with axes and room above for a legend of so many entries."""
    around = bottom + 0.1 + LINE * -(-entries // legend_columns(width))
    inside = 1.85 if height is None else max(1.0, height - around)
    figure = Figure(figsize=(width, around + inside))
    return figure, axes_at(figure, (0.55, bottom, width - 0.7, inside))


def legend_columns(width: float) -> int:
    """Return how many entries of a legend stand side by side in a figure of this width."""
    return 2 if width > NARROW else 1


def legend_above(axes: Axes, width: float) -> None:
    """Put the legend above the axes, where it hides nothing."""
    columns = legend_columns(width)
    legend = axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.2, labelspacing=0.3)
    for text in legend.get_texts():
        text.set_parse_math(False)
        text.set_text(fitted(text.get_text(), (width - 0.7) / columns - 0.4))
