"""A chart as a figure of Matplotlib, for files of other formats and for a notebook."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from attn_exp.report.charts.chart import CLOSED, Axis, Box, Chart, Heat, Plot, Scale, Stroke, Ticks, Words

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
