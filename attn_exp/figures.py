"""The figures of a comparison: each function returns a `Figure`, and `encoded` turns one into a file's bytes.

Figures are drawn on `matplotlib.figure.Figure` alone, in inches, so that no label is cut off and equal comparisons give
equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attn_exp.compare import Comparison
from attn_exp.lettering import drawable, fitted, fonts_for, widest
from attn_exp.views import distances, entropy, heads_of, label, panels, sweeps

Array = NDArray[Any]

WIDTH = 6.3
"""Inches: the text width of an A4 page."""

STYLE = Path(__file__).with_name("paper.mplstyle")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, told apart by the colour-blind."""

MARKERS = "osD^vPX"
WEIGHT_MAP = "Blues"
LINE, GAP = 0.17, 0.12
NUMBERS_UP_TO = 8
"""Cells hold their number where a matrix has at most this many rows and columns."""


def draw(comparison: Comparison) -> dict[str, Figure]:
    """Return every figure of a comparison by its name."""
    problem = comparison.problem
    fonts = fonts_for((*problem.tokens, *problem.key_tokens, *comparison.traces))
    with matplotlib.rc_context({"font.family": fonts}, STYLE):
        drawn = {"weights": weights(comparison), "distances": distance_matrix(comparison)}
        if any(comparison.traces[name].scores is not None for name in comparison.traces):
            drawn["sharpness"] = sharpness(comparison)
        drawn["entropy"] = entropy_per_query(comparison)
        return drawn


def encoded(figure: Figure, form: str) -> bytes:
    """Return the bytes of a figure as `png`, `svg` or `pdf`, equal for equal figures."""
    stream = BytesIO()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None, "ModDate": None}}
    with matplotlib.rc_context(fname=STYLE):
        FigureCanvasAgg(figure)
        figure.savefig(stream, format=form, dpi=160, metadata=dates.get(form))
    return stream.getvalue()


def weights(comparison: Comparison, width: float = WIDTH) -> Figure:
    """Show the weights of each variant and head, queries down, keys across, on one colour scale from zero."""
    maps = [each for panel in panels(comparison) for each in heads_of(panel)]
    rows, columns = labels(comparison.problem.tokens), labels(comparison.problem.key_tokens)
    across = min(len(maps), 4)
    down = -(-len(maps) // across)
    left, right = widest(rows) + 0.32, 0.55
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
        image = heat(axes, matrix, top, "Blues")
        axes.set_title(fitted(drawable(title), side), parse_math=False)
        last = place + across >= len(maps)
        name_ticks(axes, rows if column == 0 else [], columns if last else [], slanted, (side, tall))
    figure.text(0.01 / width + 0.012, (bottom + tall / 2) / height, "query", rotation=90, va="center", ha="left")
    figure.text((left + side / 2) / width, 0.03 / height, "key", va="bottom", ha="center")
    bar = axes_at(figure, (left + across * (side + GAP), bottom + (down - 1) * pitch, 0.1, tall))
    figure.colorbar(image, cax=bar)
    bar.set_title("weight", loc="left")
    return figure


def distance_matrix(comparison: Comparison) -> Figure:
    """Show the largest difference between the outputs of every pair of variants."""
    names, matrix = distances(comparison)
    names_shown = labels(names)
    left = widest(names_shown) + 0.1
    cell = min(0.65, (WIDTH - left - 0.2) / len(names))
    side = cell * len(names)
    slanted = widest(names_shown) > 0.9 * cell
    bottom = 0.12 + (widest(names_shown) if slanted else LINE)
    figure = Figure(figsize=(max(left + side + 0.2, 3.2), bottom + side + 1.8 * LINE))
    axes = axes_at(figure, (left, bottom, side, side))
    finite = np.where(np.isfinite(matrix), matrix, np.nan)
    heat(axes, finite, float(np.nanmax(finite)) or 1.0, "Oranges", form=".2g" if cell > 0.5 else ".0e", most=12)
    name_ticks(axes, names_shown, names_shown, slanted, (side, side))
    axes.set_title("largest difference between outputs", loc="left")
    return figure


def sharpness(comparison: Comparison) -> Figure:
    """Show how the mean entropy of the weights falls as the multiplier of the scores grows; the run's own is marked."""
    found = sweeps(comparison)
    figure, axes = plot_below_legend(len(found), 0.42, 1.85)
    for place, each in enumerate(found):
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(each.multipliers, each.entropy, color=colour, label=each.title)
        axes.axvline(each.standard, color=colour, linewidth=0.7, linestyle=":")
        if each.own > 0:
            height = float(np.interp(each.own, each.multipliers, each.entropy))
            axes.plot([each.own], [height], MARKERS[place % len(MARKERS)], color=colour)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda multiplier, place: f"{multiplier:g}")
    axes.set_ylim(0, None)
    axes.set_xlabel("multiplier of the scores (dotted: 1/sqrt(d); marked: this run)")
    axes.set_ylabel("mean entropy (nats)")
    legend_above(axes)
    return figure


def entropy_per_query(comparison: Comparison) -> Figure:
    """Show the entropy of each query's weights: the mean over heads as a mark, each head as a faint one."""
    names = labels(comparison.problem.tokens)
    wide = WIDTH - 0.7
    slanted = widest(names) > 0.9 * wide / len(names)
    bottom = 0.2 + (widest(names) if slanted else LINE)
    shown = panels(comparison)
    figure, axes = plot_below_legend(len(shown) + 1, bottom, 1.85)
    small = 3 if len(names) <= 16 else 2
    for place, panel in enumerate(shown):
        colour, mark, each = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)], entropy(panel.weights)
        queries = np.arange(len(names)) + 0.6 * ((place + 0.5) / len(shown) - 0.5)
        if len(each) > 1:
            axes.plot(queries, each.T, mark, color=colour, alpha=0.3, markersize=small)
        axes.plot(queries, each.mean(axis=0), mark, color=colour, label=panel.title, markersize=1.5 * small)
    ceiling = float(np.log(comparison.problem.keys))
    axes.axhline(ceiling, color="0.5", linewidth=0.7, linestyle=":", label=f"ln {comparison.problem.keys}: uniform")
    axes.set_ylim(0, 1.08 * ceiling or 1.0)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylabel("entropy (nats)")
    name_axis(axes.xaxis, names, slanted, wide)
    legend_above(axes)
    return figure


def plot_below_legend(entries: int, bottom: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of full width with axes `height` inches high and room above for a legend of so many entries."""
    figure = Figure(figsize=(WIDTH, bottom + height + 0.1 + LINE * -(-entries // 2)))
    return figure, axes_at(figure, (0.55, bottom, WIDTH - 0.7, height))


def labels(tokens: Sequence[str]) -> list[str]:
    """Return tokens as labels that the fonts in use can draw."""
    return [drawable(label(token)) for token in tokens]


def axes_at(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """Add axes at left, bottom, width and height in inches."""
    width, height = figure.get_size_inches()
    return figure.add_axes((box[0] / width, box[1] / height, box[2] / width, box[3] / height))


def heat(axes: Axes, matrix: Array, top: float, colours: str, form: str = ".2f", most: int = NUMBERS_UP_TO) -> Any:
    """Draw a matrix as a heat map from 0 to `top`, with its numbers where they fit."""
    image = axes.imshow(matrix, vmin=0, vmax=top, cmap=colours, aspect="auto", interpolation="nearest")
    axes.spines[["left", "bottom"]].set_visible(False)
    if max(matrix.shape) <= most:
        for (row, column), value in np.ndenumerate(matrix):
            ink = "white" if value > 0.6 * top else "black"
            axes.text(column, row, format(value, form), ha="center", va="center", color=ink, fontsize=7)
    return image


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


def legend_above(axes: Axes) -> None:
    """Put the legend above the axes, in two columns, where it hides nothing."""
    legend = axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2, labelspacing=0.3)
    for text in legend.get_texts():
        text.set_parse_math(False)
        text.set_text(fitted(text.get_text(), (WIDTH - 0.7) / 2 - 0.4))
