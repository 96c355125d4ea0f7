"""Plots of a sweep over two keys or more: heat maps, and parallel coordinates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import matplotlib
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attn_exp.experiment.row import titled
from attn_exp.report import words
from attn_exp.report.charts.matplotlib_figure import drawable
from attn_exp.sweeps.answers.totals import LAYER, Summary, head_and_pattern, head_column
from attn_exp.sweeps.panels import ends, in_order, labels, level, name_ticks, panels

Key = tuple[str, ...]

PANELS, DRAWN_APART = 9, 60
PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.6}
MAP = "cividis"
"""Even in brightness, for the colour-blind and for grey print."""


def heat(summary: Summary, metric: str, places: Sequence[int]) -> Figure:
    """Draw the means of one metric over two keys, a panel per variant, on one colour scale."""
    down, across = (in_order(labels(summary, place)) for place in places)
    variants = summary.variants[:PANELS]
    figure, axes = panels(len(variants), min(3, len(variants)), 2.1)
    maps = {variant: np.full((len(down), len(across)), np.nan) for variant in variants}
    for key, cell in summary.cells.items():
        if key[-1] in maps and metric in cell:
            maps[key[-1]][down.index(key[places[0]]), across.index(key[places[1]])] = cell[metric].mean
    scale = Normalize(*ends(np.stack(list(maps.values()))))
    for panel, (variant, matrix) in zip(axes, maps.items(), strict=True):
        panel.imshow(matrix, cmap=MAP, norm=scale, aspect="auto", interpolation="nearest")
        name_ticks(panel.xaxis, across, 8)
        name_ticks(panel.yaxis, down, 14)
        panel.set_title(drawable(variant), parse_math=False)
        panel.set_xlabel(drawable(summary.axes[places[1]]), parse_math=False)
    axes[0].set_ylabel(drawable(summary.axes[places[0]]), parse_math=False)
    figure.colorbar(ScalarMappable(scale, MAP), ax=axes, label=titled(metric), shrink=0.8)
    return figure


def parallel(summary: Summary, metric: str, places: Sequence[int]) -> Figure:
    """Draw an upright axis per key and a line per combination, coloured by its mean.

    More combinations than can be told apart are drawn as the mean of all that share two neighbouring values.
    """
    names = [*(summary.axes[place] for place in places), words.VARIANT_HEAD]
    places = [*places, len(summary.axes)]
    orders = [in_order(labels(summary, place)) for place in places]
    cells = [
        (tuple(key[place] for place in places), cell[metric].mean)
        for key, cell in summary.cells.items()
        if metric in cell
    ]
    scale = Normalize(*ends(np.array([mean for _, mean in cells])))
    figure, (panel,) = panels(1, 1, 2.6)
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


def by_layers(summary: Summary) -> Figure | None:
    """Draw the patterns of heads: layers down, heads across, a panel for each pattern; None where there are none.

    Several points of one layer are drawn as their mean, and of several variants the first.
    """
    places = [place for name in summary.most if (place := head_and_pattern(name))]
    if not places or LAYER not in summary.axes:
        return None
    axis, heads = summary.axes.index(LAYER), max(head for head, _ in places)
    layers, patterns = in_order(labels(summary, axis)), list(dict.fromkeys(pattern for _, pattern in places))
    figure, axes = panels(len(patterns), 3, max(1.0, 0.13 * len(layers) + 0.5))
    for panel, pattern in zip(axes, patterns, strict=True):
        matrix = pattern_map(summary, axis, (layers, heads), pattern)
        panel.imshow(matrix, cmap=MAP, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        name_ticks(panel.xaxis, [str(head + 1) for head in range(heads)], 8)
        name_ticks(panel.yaxis, layers, 14)
        panel.set_title(pattern)
        panel.set_xlabel(words.HEAD_AXIS)
        panel.set_ylabel(words.LAYER_AXIS)
    figure.colorbar(ScalarMappable(Normalize(0, 1), MAP), ax=axes, label=words.SHARE, shrink=0.8)
    return figure


def pattern_map(summary: Summary, axis: int, shape: tuple[Sequence[str], int], pattern: str) -> NDArray[np.float64]:
    """Return one pattern of the first variant, `[layer head]`, NaN where nothing was measured."""
    layers, heads = shape
    sums, counts = np.zeros((len(layers), heads)), np.zeros((len(layers), heads))
    for key, cell in summary.cells.items():
        for head in range(heads):
            moments = cell.get(head_column(head + 1, pattern))
            if moments is not None and key[-1] == summary.variants[0]:
                sums[layers.index(key[axis]), head] += moments.mean
                counts[layers.index(key[axis]), head] += 1
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
