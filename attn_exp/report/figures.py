"""The figures of a comparison: each function returns a `Figure`, and `encoded` turns one into a file's bytes.

Figures are drawn on `matplotlib.figure.Figure` alone, in inches, so that no label is cut off and equal comparisons give
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
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attn_exp.experiment.comparison import Comparison
from attn_exp.report.lettering import drawable, fitted, fonts_for, widest
from attn_exp.report.views import FINE, coarse, distances, entropy, heads_of, label, panels, sweeps

Array = NDArray[Any]

WIDTH = 6.3
"""Inches: the text width of an A4 page."""

STYLE = Path(__file__).with_name("paper.mplstyle")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, told apart by the colour-blind."""

MARKERS = "osD^vPX"
WEIGHT_MAP = "Blues"
SCALE = "scale"
LINE, GAP = 0.17, 0.12
NARROW, NARROWEST = 4.5, 1.05
"""Inches: figures up to the first have one column of text; no map is narrower than the second while there is room."""

MARKED = 200
"""Up to this many queries are marked one by one, with their heads; more are a line."""

CELLS_AS_THEY_ARE = 10_000
"""Maps of up to so many cells are small enough to be stored cell by cell."""

NUMBERS_UP_TO = 8
"""Cells hold their number where a matrix has at most this many rows and columns."""


def draw(comparison: Comparison) -> dict[str, Figure]:
    """Return every figure of a comparison by its name, as wide as its configuration says.

    A form that never forms its weights has none to show.
    """
    problem = comparison.problem
    fonts = fonts_for((*problem.tokens, *problem.key_tokens, *comparison.traces))
    with look({"font.family": fonts}):
        width = comparison.config.figures.width
        drawn = {"distances": distance_matrix(comparison, width)}
        if panels(comparison):
            drawn = {"weights": weights(comparison, width)} | drawn
            drawn["entropy"] = entropy_per_query(comparison, width)
        if coarse(comparison):
            drawn = {"blocks": blocks(comparison, width)} | drawn
        if sweeps(comparison):
            drawn["sharpness"] = sharpness(comparison, width)
        return drawn


def look(further: Mapping[str, Any] = MappingProxyType({})) -> AbstractContextManager[None]:
    """Return the context to draw in: our style upon Matplotlib's defaults, so that no user's settings change a figure.

    `rc_context` would take the file itself, but first reads every style that comes with Matplotlib.
    """
    style: dict[Any, Any] = {**matplotlib.rc_params_from_file(STYLE), **further}
    del style["backend"]  # a choice of windows, which no figure needs
    return matplotlib.rc_context(style)


def encoded(figure: Figure, form: str) -> bytes:
    """Return the bytes of a figure as `png`, `svg` or `pdf`, equal for equal figures."""
    stream = BytesIO()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None, "ModDate": None}}
    with look():
        FigureCanvasAgg(figure)
        sharpen(figure, "none" if form == "svg" else "nearest")
        options: dict[str, Any] = {"pil_kwargs": {"compress_level": 2}} if form == "png" else {}  # faster, as small
        figure.savefig(stream, format=form, dpi=160, metadata=dates.get(form), **options)
    return stream.getvalue()


def sharpen(figure: Figure, interpolation: str) -> None:
    """Let maps of few cells be stored cell by cell, with edges sharp at any size, or as pixels.

    Browsers draw the cells of an SVG as they are; some viewers of PDF would smooth them.
    """
    for image in (each for axes in figure.axes for each in axes.images):
        if image.get_size()[0] * image.get_size()[1] <= CELLS_AS_THEY_ARE:
            image.set_interpolation(interpolation)


def weights(comparison: Comparison, width: float = WIDTH) -> Figure:
    """Show the weights of each variant and head, queries down, keys across, on one colour scale from zero."""
    maps = [each for panel in panels(comparison) for each in heads_of(panel)]
    return weight_maps(maps, labels(comparison.problem.tokens), labels(comparison.problem.key_tokens), width)


def blocks(comparison: Comparison, width: float = WIDTH) -> Figure:
    """Show the mean weight of each block of queries and keys, named by the number of its first.

    The colours of a large map follow the square root: the first rows of a causal mask have thousands of times
    the weights of the last.
    """
    found = coarse(comparison)
    maps = [each for panel in found for each in heads_of(panel)]
    summary = comparison.traces[found[0].variants[0]].summary
    assert summary is not None
    rows, columns = ([str(edge + 1) for edge in edges[:-1]] for edges in (summary.row_edges, summary.key_edges))
    large = max(len(rows), len(columns)) > FINE
    return weight_maps(maps, rows, columns, width, "mean", gamma=0.5 if large else 1.0)


def weight_maps(
    maps: Sequence[tuple[str, Array]],
    rows: list[str],
    columns: list[str],
    width: float,
    unit: str = "weight",
    gamma: float = 1.0,
) -> Figure:
    """Show maps with their titles side by side, on one colour scale from zero, which follows this power of a weight."""
    left, right = widest(rows) + 0.32, 0.55
    across = max(1, min(len(maps), 4, int((width - left - right) / NARROWEST)))
    down = -(-len(maps) // across)
    side = (width - left - right - GAP * (across - 1)) / across
    side = min(side, 2.4)
    tall = side * max(0.4, min(2.5, len(rows) / len(columns)))
    slanted = widest(columns) > 0.9 * side / len(columns)
    bottom = 0.22 + (widest(columns) if slanted else LINE)
    pitch = tall + LINE * 2
    height = bottom + down * pitch
    figure = Figure(figsize=(width, height))
    top = max(float(each.max(initial=0)) for _, each in maps) or 1.0
    for place, (title, matrix) in enumerate(maps):
        line, column = divmod(place, across)
        box = (left + column * (side + GAP), bottom + (down - 1 - line) * pitch, side, tall)
        axes = axes_at(figure, box)
        heat(axes, matrix, top, WEIGHT_MAP, side / len(columns)).set_norm(PowerNorm(gamma, 0, top))
        axes.set_title(short_title(drawable(title), side), parse_math=False)
        last = place + across >= len(maps)
        name_ticks(axes, rows if column == 0 else [], columns if last else [], slanted, (side, tall))
    figure.text(0.01 / width + 0.012, (bottom + tall / 2) / height, "query", rotation=90, va="center", ha="left")
    figure.text((left + side / 2) / width, 0.03 / height, "key", va="bottom", ha="center")
    bar = axes_at(figure, (left + across * (side + GAP), bottom + (down - 1) * pitch, 0.1, tall))
    colour_scale(bar, top, WEIGHT_MAP).set_norm(PowerNorm(gamma, 0, top))
    bar.set_title(unit, loc="left")
    return figure


def distance_matrix(comparison: Comparison, width: float = WIDTH) -> Figure:
    """Show the largest difference between the outputs of every pair of variants."""
    names, matrix = distances(comparison)
    names_shown = labels(names)
    left = widest(names_shown) + 0.1
    cell = min(0.65, (width - left - 0.2) / len(names))
    side = cell * len(names)
    slanted = widest(names_shown) > 0.9 * cell
    bottom = 0.12 + (widest(names_shown) if slanted else LINE)
    figure = Figure(figsize=(max(left + side + 0.2, min(3.2, width)), bottom + side + 1.8 * LINE))
    axes = axes_at(figure, (left, bottom, side, side))
    finite = np.where(np.isfinite(matrix), matrix, np.nan)
    heat(axes, finite, float(np.nanmax(finite)) or 1.0, "Oranges", cell, form=".2g" if cell > 0.5 else ".0e", most=12)
    name_ticks(axes, names_shown, names_shown, slanted, (side, side))
    axes.set_title(fitted("largest difference between outputs", figure.get_figwidth() - left), loc="left")
    return figure


def sharpness(comparison: Comparison, width: float = WIDTH) -> Figure:
    """Show how the mean entropy of the weights falls as the multiplier of the scores grows; the run's own is marked."""
    found = sweeps(comparison)
    figure, axes = plot_below_legend(len(found), 0.42 if width > NARROW else 0.56, 1.85, width)
    for place, each in enumerate(found):
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(each.multipliers, each.entropy, color=colour, label=each.title)
        axes.axvline(each.standard, color=colour, linewidth=0.7, linestyle=":")
        if each.own > 0:
            height = float(np.interp(each.own, each.multipliers, each.entropy))
            axes.plot([each.own], [height], MARKERS[place % len(MARKERS)], color=colour)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda multiplier, place: f"{multiplier:g}")
    axes.set_ylim(0, None)
    between = " " if width > NARROW else "\n"
    axes.set_xlabel(f"multiplier of the scores{between}(dotted: 1/sqrt(d); marked: this run)")
    axes.set_ylabel("mean entropy (nats)")
    legend_above(axes, width)
    return figure


def entropy_per_query(comparison: Comparison, width: float = WIDTH) -> Figure:
    """Show the entropy of each query's weights: the mean over heads as a mark, each head as a faint one."""
    names = labels(comparison.problem.tokens)
    wide = width - 0.7
    slanted = widest(names) > 0.9 * wide / len(names)
    bottom = 0.2 + (widest(names) if slanted else LINE)
    shown = panels(comparison)
    figure, axes = plot_below_legend(len(shown) + 1, bottom, 1.85, width)
    small = 3 if len(names) <= 16 else 2
    for place, panel in enumerate(shown):
        colour, mark, each = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)], entropy(panel.weights)
        queries = np.arange(len(names)) + 0.6 * ((place + 0.5) / len(shown) - 0.5)
        if len(each) > 1 and len(names) <= MARKED:
            axes.plot(queries, each.T, mark, color=colour, alpha=0.3, markersize=small)
        line, size = (mark, 1.5 * small) if len(names) <= MARKED else ("-", 0.0)
        means = each.mean(axis=0)
        axes.plot(queries, means, line, color=colour, label=panel.title, markersize=size, linewidth=0.8)
    ceiling = float(np.log(comparison.problem.keys))
    axes.axhline(ceiling, color="0.5", linewidth=0.7, linestyle=":", label=f"ln {comparison.problem.keys}: uniform")
    axes.set_ylim(0, 1.08 * ceiling or 1.0)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylabel("entropy (nats)")
    name_axis(axes.xaxis, names, slanted, wide)
    legend_above(axes, width)
    return figure


def plot_below_legend(entries: int, bottom: float, height: float, width: float) -> tuple[Figure, Axes]:
    """Return a figure with axes `height` inches high and room above for a legend of so many entries."""
    lines = -(-entries // legend_columns(width))
    figure = Figure(figsize=(width, bottom + height + 0.1 + LINE * lines))
    return figure, axes_at(figure, (0.55, bottom, width - 0.7, height))


def legend_columns(width: float) -> int:
    return 2 if width > NARROW else 1


def short_title(title: str, width: float) -> str:
    """Return the title of a map, shortened to this width; of a head's, the number stays."""
    name, comma, head = title.rpartition(", head ")
    if not comma or widest([title]) <= width:
        return fitted(title, width)
    return f"{fitted(name, width - widest([f' {head}']))} {head}"


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


def colour_scale(axes: Axes, top: float, colours: str) -> Any:
    """Draw the colours from 0 to `top`, with numbers at the right."""
    axes.set_label(SCALE)
    shades = np.linspace(0, top, 256)[:, None]
    image = axes.imshow(shades, cmap=colours, aspect="auto", origin="lower", extent=(0, 1, 0, top))
    axes.tick_params(labelbottom=False, bottom=False, labelleft=False, left=False, labelright=True, right=True)
    axes.spines[["top", "right"]].set_visible(True)
    axes.yaxis.set_major_formatter("{x:.2g}")
    without_labels(axes)
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


def legend_above(axes: Axes, width: float) -> None:
    """Put the legend above the axes, where it hides nothing."""
    columns = legend_columns(width)
    legend = axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.2, labelspacing=0.3)
    for text in legend.get_texts():
        text.set_parse_math(False)
        text.set_text(fitted(text.get_text(), (width - 0.7) / columns - 0.4))
