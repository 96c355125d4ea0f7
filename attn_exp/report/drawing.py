"""What all drawings share: one style, colours, axes in inches, names on axes, and the bytes of a file.

Drawings are made on `matplotlib.figure.Figure` alone, in inches, so that no label is cut off and equal comparisons give
equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
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
    stream = BytesIO()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None, "ModDate": None}}
    FigureCanvasAgg(figure)
    sharpen(figure, "none" if form == "svg" else "nearest")
    options: dict[str, Any] = {"pil_kwargs": {"compress_level": 2}} if form == "png" else {}  # faster, as small
    figure.savefig(stream, format=form, dpi=160, metadata=dates.get(form), **options)
    return stream.getvalue()


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


def plot_below_legend(entries: int, bottom: float, height: float, width: float) -> tuple[Figure, Axes]:
    """Return a figure with axes `height` inches high and room above for a legend of so many entries."""
    lines = -(-entries // legend_columns(width))
    figure = Figure(figsize=(width, bottom + height + 0.1 + LINE * lines))
    return figure, axes_at(figure, (0.55, bottom, width - 0.7, height))


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
