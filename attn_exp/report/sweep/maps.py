"""Plots of a sweep by settings: effects, heat maps of two settings, parallel coordinates, and heads by layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from attn_exp.arrays import Array
from attn_exp.experiment.row import titled
from attn_exp.report import words
from attn_exp.report.charts.matplotlib_figure import WIDTH, drawable
from attn_exp.report.sweep.plotted import Plotted, in_order, labels

COLOUR_OF = {True: "#0072B2", False: "0.55"}
"""The colours of changes that are significant, and of others."""

PANEL = WIDTH / 3
"""Inches that a panel needs."""

PANELS, MOST_LINES = 9, 200
MAP = "cividis"
"""Even in brightness, for the colour-blind and for grey print."""


def panels(plotted: Plotted, count: int, across: int, height: float = 1.75) -> tuple[Figure, list[Axes]]:
    """Return a figure with so many panels of a height, no more side by side than there is room for."""
    across = min(across, max(1, round(plotted.width / PANEL)))
    down = -(-count // across)
    high = plotted.size.height or plotted.zoom * (0.55 + down * height)
    figure = Figure(figsize=(plotted.size.width, high), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).ravel().tolist()
    for spare in grid[count:]:
        spare.set_visible(False)
    return figure, grid[:count]


def name_ticks(axis: Any, names: Sequence[str], most: int = 60) -> None:
    """Name the places of an axis, as many as can be read."""
    places = range(0, len(names), max(1, math.ceil(len(names) / most)))
    axis.set_ticks(places, [drawable(names[place]) for place in places], parse_math=False)


def title(panel: Axes, text: str = "", x: str = "", y: str = "") -> None:
    """Set the title of a panel and the names of its axes, none of which is mathematics."""
    panel.set_title("\n".join(map(drawable, text.split("\n"))), parse_math=False)
    panel.set_xlabel(drawable(x), parse_math=False)
    panel.set_ylabel(drawable(y), parse_math=False)


def legend(figure: Figure, panel: Axes, left_out: str = "") -> None:
    """Name the lines of all panels once, above them, and say what is left out."""
    handles, names = panel.get_legend_handles_labels()
    if len(handles) > 1:
        box = figure.legend(handles, names, loc="outside upper left", ncols=4, title=left_out or None)
        for text in box.get_texts():
            text.set_parse_math(False)


def show_map(panel: Axes, matrix: Array, scale: Normalize, across: Sequence[str], down: Sequence[str]) -> None:
    """Draw a matrix as a map of colours with the names of its rows and columns."""
    panel.imshow(matrix, cmap=MAP, norm=scale, aspect="auto", interpolation="nearest")
    name_ticks(panel.xaxis, across, 8)
    name_ticks(panel.yaxis, down, 14)


def heat(plotted: Plotted, metric: str, places: Sequence[int]) -> Figure:
    """Draw the means of one metric over two keys, a panel per variant, on one colour scale."""
    down, across = (in_order(labels(plotted, place)) for place in places)
    variants = plotted.variants[:PANELS]
    figure, axes = panels(plotted, len(variants), min(3, len(variants)), 2.1)
    maps = {variant: np.full((len(down), len(across)), np.nan) for variant in variants}
    for key, cell in plotted.cells.items():
        if key[-1] in maps and metric in cell:
            maps[key[-1]][down.index(key[places[0]]), across.index(key[places[1]])] = cell[metric].mean
    every = np.stack(list(maps.values()))
    scale = Normalize(np.nanmin(every), np.nanmax(every))
    for panel, (variant, matrix) in zip(axes, maps.items(), strict=True):
        show_map(panel, matrix, scale, across, down)
        title(panel, variant, plotted.axes[places[1]], plotted.axes[places[0]] if panel is axes[0] else "")
    figure.colorbar(ScalarMappable(scale, MAP), ax=axes, label=titled(metric), shrink=0.8)
    return figure


def parallel(plotted: Plotted, metric: str, places: Sequence[int]) -> Figure:
    """Draw an upright axis per key and a line per combination, coloured by its mean; of very many every nth."""
    names = [*(plotted.axes[place] for place in places), words.VARIANT_HEAD]
    places = [*places, len(plotted.axes)]
    orders = [in_order(labels(plotted, place)) for place in places]
    heights = [dict(zip(order, np.linspace(0, 1, len(order)) if order[1:] else [0.5], strict=True)) for order in orders]
    cells = [(key, cell[metric].mean) for key, cell in plotted.cells.items() if metric in cell]
    scale = Normalize(min(mean for _, mean in cells), max(mean for _, mean in cells))
    figure, (panel,) = panels(plotted, 1, 1, 2.6)
    for key, mean in cells[:: math.ceil(len(cells) / MOST_LINES)]:
        line = [heights[at][key[place]] for at, place in enumerate(places)]
        panel.plot(line, color=matplotlib.colormaps[MAP](scale(mean)), alpha=0.85)
    for at, order in enumerate(orders):
        panel.axvline(at, color="0.3", linewidth=matplotlib.rcParams["axes.linewidth"])
        for label in order[:: max(1, len(order) // 12)]:
            box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.6}
            text = f" {drawable(label)}"
            panel.text(at, heights[at][label], text, va="center", parse_math=False, fontsize="small", bbox=box)
    name_ticks(panel.xaxis, names)
    panel.set_xlim(-0.1, len(names) - 0.6)
    panel.set_yticks([])
    panel.spines["left"].set_visible(False)
    figure.colorbar(ScalarMappable(scale, MAP), ax=panel, label=titled(metric))
    return figure


def heads_by_layer(plotted: Plotted) -> Figure:
    """Draw the patterns of heads: layers down, heads across, a panel for each pattern."""
    figure, axes = panels(plotted, len(plotted.heads), 3, max(1.0, 0.13 * len(plotted.layers) + 0.5))
    for panel, (pattern, matrix) in zip(axes, plotted.heads.items(), strict=True):
        heads = [str(head + 1) for head in range(matrix.shape[1])]
        show_map(panel, matrix, Normalize(0, 1), heads, plotted.layers)
        title(panel, pattern, "head", "layer")
    figure.colorbar(ScalarMappable(Normalize(0, 1), MAP), ax=axes, label=words.SHARE, shrink=0.8)
    return figure


def effects(plotted: Plotted) -> Figure:
    """Draw the changes of each metric, the largest above: the mean and its interval, if there is one."""
    changes = plotted.changes
    figure, axes = panels(plotted, len(changes), 1, 0.5 + 0.2 * max(map(len, changes.values())))
    for panel, (metric, lines) in zip(axes, changes.items(), strict=True):
        panel.axvline(0, color="0.3", linewidth=matplotlib.rcParams["axes.linewidth"])
        for sure, colour in COLOUR_OF.items():
            rows = [(row, line) for row, line in enumerate(lines) if line.sure == sure]
            name = "significant" if sure else "not significant"
            ends = [(line.mean - line.low, line.high - line.mean) for _, line in rows]
            if rows:
                panel.errorbar(
                    [line.mean for _, line in rows], [row for row, _ in rows], xerr=np.nan_to_num(ends).T, fmt="o",
                    color=colour, label=name,
                )  # fmt: skip
        name_ticks(panel.yaxis, [line.label for line in lines])
        panel.set_ylim(len(lines) - 0.5, -0.5)
        title(panel, x=f"change of the {titled(metric)}")
    legend(figure, axes[0])
    return figure
