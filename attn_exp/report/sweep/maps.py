"""Plots of a sweep by settings: effects, heat maps of two settings, parallel coordinates, and heads by layer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
from attn_exp.report.sweep.plotted import Change, Numbers, Plotted, in_order, labels

SURE, UNSURE = "#0072B2", "0.55"
"""The colours of changes that are sure, and of others."""

PANEL = WIDTH / 3
"""Inches that a panel needs."""

Key = tuple[str, ...]

PANELS, DRAWN_APART = 9, 60
PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.6}
MAP = "cividis"
"""Even in brightness, for the colour-blind and for grey print."""


def panels(width: float, count: int, across: int, height: float = 1.75) -> tuple[Figure, list[Axes]]:
    """Return a figure of this width with so many panels, no more side by side than there is room for."""
    across = min(across, max(1, round(width / PANEL)))
    down = -(-count // across)
    figure = Figure(figsize=(width, 0.55 + down * height), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).ravel().tolist()
    for spare in grid[count:]:
        spare.set_visible(False)
    return figure, grid[:count]


def half(numbers: Numbers) -> float:
    """Return half the width of an interval, 0 where one number has none."""
    return 0.0 if math.isnan(numbers.half_width) else numbers.half_width


def level(order: Sequence[str], label: str) -> float:
    """Return the height of a label on an upright axis, from 0 to 1."""
    return 0.5 if len(order) == 1 else order.index(label) / (len(order) - 1)


def ends(numbers: Array) -> tuple[float, float]:
    """Return the least and the largest number."""
    return float(np.nanmin(numbers)), float(np.nanmax(numbers))


def same_scale(axes: Sequence[Axes]) -> None:
    """Give panels that are compared one scale."""
    if axes:
        low, high = min(panel.get_ylim()[0] for panel in axes), max(panel.get_ylim()[1] for panel in axes)
        room = 0.04 * (high - low) * all(panel.get_yscale() == "linear" for panel in axes)  # for marks at the ends
        for panel in axes:
            panel.set_ylim(low - room, high + room)


def name_ticks(axis: Any, names: Sequence[str], most: int) -> None:
    """Name the places of a heat map, as many as can be read."""
    places = range(0, len(names), max(1, math.ceil(len(names) / most)))
    axis.set_ticks(places, [drawable(names[place]) for place in places], parse_math=False)


def legend(figure: Figure, panel: Axes) -> None:
    """Name the lines of all panels once, above them."""
    handles, names = panel.get_legend_handles_labels()
    if len(handles) > 1:
        box = figure.legend(handles, names, loc="outside upper left", ncols=4)
        for text in box.get_texts():
            text.set_parse_math(False)


def heat(plotted: Plotted, metric: str, places: Sequence[int]) -> Figure:
    """Draw the means of one metric over two keys, a panel per variant, on one colour scale."""
    down, across = (in_order(labels(plotted, place)) for place in places)
    variants = plotted.variants[:PANELS]
    figure, axes = panels(plotted.width, len(variants), min(3, len(variants)), 2.1)
    maps = {variant: np.full((len(down), len(across)), np.nan) for variant in variants}
    for key, cell in plotted.cells.items():
        if key[-1] in maps and metric in cell:
            maps[key[-1]][down.index(key[places[0]]), across.index(key[places[1]])] = cell[metric].mean
    scale = Normalize(*ends(np.stack(list(maps.values()))))
    for panel, (variant, matrix) in zip(axes, maps.items(), strict=True):
        panel.imshow(matrix, cmap=MAP, norm=scale, aspect="auto", interpolation="nearest")
        name_ticks(panel.xaxis, across, 8)
        name_ticks(panel.yaxis, down, 14)
        panel.set_title(drawable(variant), parse_math=False)
        panel.set_xlabel(drawable(plotted.axes[places[1]]), parse_math=False)
    axes[0].set_ylabel(drawable(plotted.axes[places[0]]), parse_math=False)
    figure.colorbar(ScalarMappable(scale, MAP), ax=axes, label=titled(metric), shrink=0.8)
    return figure


def parallel(plotted: Plotted, metric: str, places: Sequence[int]) -> Figure:
    """Draw an upright axis per key and a line per combination, coloured by its mean.

    More combinations than can be told apart are drawn as the mean of all that share two neighbouring values.
    """
    names = [*(plotted.axes[place] for place in places), words.VARIANT_HEAD]
    places = [*places, len(plotted.axes)]
    orders = [in_order(labels(plotted, place)) for place in places]
    cells = [
        (tuple(key[place] for place in places), cell[metric].mean)
        for key, cell in plotted.cells.items()
        if metric in cell
    ]
    scale = Normalize(*ends(np.array([mean for _, mean in cells])))
    figure, (panel,) = panels(plotted.width, 1, 1, 2.6)
    for start, stop, mean, share in strokes(cells, len(places)):
        height = [level(orders[at], label) for at, label in (start, stop)]
        colour = matplotlib.colormaps[MAP](scale(mean))
        panel.plot([start[0], stop[0]], height, color=colour, linewidth=0.6 + 2.4 * share, alpha=0.85)
    for at, order in enumerate(orders):
        panel.axvline(at, color="0.3", linewidth=0.6)
        for label in order[:: max(1, len(order) // 12)]:
            panel.annotate(
                drawable(label),
                (at, level(order, label)),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                parse_math=False,
                fontsize=7,
                bbox=PAPER,
            )
    panel.set_xticks(range(len(names)), [drawable(name) for name in names], parse_math=False)
    panel.set_xlim(-0.1, len(names) - 0.6)
    panel.set_yticks([])
    panel.spines["left"].set_visible(False)
    figure.colorbar(ScalarMappable(scale, MAP), ax=panel, label=titled(metric))
    return figure


def strokes(
    cells: Sequence[tuple[Key, float]], count: int
) -> Iterator[tuple[tuple[int, str], tuple[int, str], float, float]]:
    """Yield what to draw between two neighbouring axes: from where, to where, the mean, and its share of all."""
    for at in range(count - 1):
        if len(cells) <= DRAWN_APART:
            yield from (((at, key[at]), (at + 1, key[at + 1]), mean, 0.2) for key, mean in cells)
            continue
        shared: dict[tuple[str, str], list[float]] = {}
        for key, mean in cells:
            shared.setdefault((key[at], key[at + 1]), []).append(mean)
        most = max(map(len, shared.values()))
        for (left, right), means in shared.items():
            yield (at, left), (at + 1, right), sum(means) / len(means), len(means) / most


def heads_by_layer(plotted: Plotted) -> Figure:
    """Draw the patterns of heads: layers down, heads across, a panel for each pattern."""
    figure, axes = panels(plotted.width, len(plotted.heads), 3, max(1.0, 0.13 * len(plotted.layers) + 0.5))
    for panel, (pattern, matrix) in zip(axes, plotted.heads.items(), strict=True):
        panel.imshow(matrix, cmap=MAP, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        name_ticks(panel.xaxis, [str(head + 1) for head in range(matrix.shape[1])], 8)
        name_ticks(panel.yaxis, plotted.layers, 14)
        panel.set_title(pattern)
        panel.set_xlabel("head")
        panel.set_ylabel("layer")
    figure.colorbar(ScalarMappable(Normalize(0, 1), MAP), ax=axes, label=words.SHARE, shrink=0.8)
    return figure


def effects(plotted: Plotted) -> Figure:
    """Draw the changes of each metric, the largest above."""
    changes = plotted.changes
    figure, axes = panels(plotted.width, len(changes), 1, 0.5 + 0.2 * max(map(len, changes.values())))
    for panel, (metric, lines) in zip(axes, changes.items(), strict=True):
        draw_changes(panel, lines)
        panel.set_xlabel(f"change of the {titled(metric)}")
    legend(figure, axes[0])
    return figure


def draw_changes(panel: Axes, lines: Sequence[Change]) -> None:
    """Draw changes under each other: the mean and its interval."""
    panel.axvline(0, color="0.3", linewidth=0.6)
    for sure, colour, name in ((True, SURE, "significant"), (False, UNSURE, "not significant")):
        rows = [row for row, line in enumerate(lines) if line.sure == sure]
        means = np.array([lines[row].mean for row in rows])
        ends = np.array([(lines[row].low, lines[row].high) for row in rows]).reshape(-1, 2).T
        ends = np.where(np.isnan(ends[0]), means, ends)  # without an interval the mean alone
        if rows:
            panel.errorbar(means, rows, xerr=abs(ends - means), fmt="o", color=colour, markersize=4, label=name)
    panel.set_yticks(range(len(lines)), [drawable(line.label) for line in lines], parse_math=False)
    panel.set_ylim(len(lines) - 0.5, -0.5)
