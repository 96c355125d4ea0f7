"""The plots of a sweep, chosen by the kind of its axes; drawn from the summary's cells, never from single rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attn_exp.experiment.row import COLUMNS
from attn_exp.report.drawing import COLOURS, MARKERS, STYLE, WIDTH, encoded
from attn_exp.report.lettering import drawable, fonts_for
from attn_exp.sweep.overview import varying, worth_plotting
from attn_exp.sweep.totals import Moments, Summary

__all__ = ["draw", "encoded"]

Array = NDArray[Any]
Key = tuple[str, ...]

LINES, PANELS, DRAWN_APART = 7, 6, 60
PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.6}
MAP = "cividis"
"""Even in brightness, for the colour-blind and for grey print."""


def draw(about: Mapping[str, Any], summary: Summary) -> dict[str, Figure]:
    """Return the plot that fits the axes that vary: lines or points for one, heat maps for two, else coordinates."""
    metrics, places = worth_plotting(summary), varying(summary)
    if not metrics:
        return {}
    texts = {text for key in summary.cells for text in key}
    with matplotlib.rc_context({"font.family": fonts_for(texts)}, STYLE):
        if not places:
            return {"spread": spread(summary, metrics)}
        numeric = [place for place in places if all(map(is_number, labels(summary, place)))]
        if len(places) == 1:
            return {"against": against(summary, metrics, places)} if numeric else {"choices": choices(summary, metrics)}
        if len(places) == 2 and len(numeric) == 1 and few(summary, places, numeric):
            return {"against": against(summary, metrics, [*numeric, *(each for each in places if each not in numeric)])}
        return (
            {"heat": heat(summary, metrics[0], places)}
            if len(places) == 2
            else {"parallel": parallel(summary, metrics[0], places)}
        )


def few(summary: Summary, places: Sequence[int], numeric: Sequence[int]) -> bool:
    """Say whether the axis that is no number has few enough choices for a panel each."""
    return all(len(labels(summary, place)) <= PANELS for place in places if place not in numeric)


def labels(summary: Summary, place: int) -> list[str]:
    """Return the labels of an axis, in the order in which they first came."""
    return list(dict.fromkeys(key[place] for key in summary.cells))


def is_number(label: str) -> bool:
    return not math.isnan(number(label))


def number(label: str) -> float:
    """Return a label as a number; the middle of a stretch `1..3`; NaN for a word."""
    low, _, high = label.partition("..")
    try:
        return (float(low) + float(high or low)) / 2
    except ValueError:
        return math.nan


def spoken(metric: str) -> str:
    """Return the head of a metric, with its unit."""
    return COLUMNS[metric].title if metric in COLUMNS else metric


def panels(count: int, across: int, height: float = 1.75) -> tuple[Figure, list[Axes]]:
    """Return a figure of full width with so many panels."""
    down = -(-count // across)
    figure = Figure(figsize=(WIDTH, 0.55 + down * height), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).ravel().tolist()
    for spare in grid[count:]:
        spare.set_visible(False)
    return figure, grid[:count]


def against(summary: Summary, metrics: Sequence[str], places: Sequence[int]) -> Figure:
    """Draw each metric against one key of numbers, a line per variant; a panel for each choice of a second key."""
    groups = labels(summary, places[1]) if len(places) > 1 else [None]
    shown = [(metric, group) for metric in (metrics if groups == [None] else metrics[:1]) for group in groups]
    figure, axes = panels(len(shown), min(2, len(shown)))
    for panel, (metric, group) in zip(axes, shown, strict=True):
        lines = {variant: line(summary, metric, places[0], variant, places[1:], group) for variant in summary.variants}
        (bundle if len(lines) > LINES else curves)(panel, lines)
        panel.set_xlabel(drawable(summary.axes[places[0]]), parse_math=False)
        panel.set_ylabel(spoken(metric))
        if len(labels(summary, places[0])) <= LINES:
            panel.set_xticks([number(label) for label in labels(summary, places[0])], labels(summary, places[0]))
        if group is not None:
            panel.set_title(drawable(f"{summary.axes[places[1]]}={group}"), parse_math=False)
    same_scale(axes if groups != [None] else [])
    legend(figure, axes[0])
    return figure


def line(
    summary: Summary, metric: str, place: int, variant: str, other: Sequence[int], group: str | None
) -> list[tuple[float, float, float]]:
    """Return the points of one line: the key's number, the mean, and half of its interval (0 where there is none)."""
    found = [
        (number(key[place]), cell[metric].mean, half(cell[metric]))
        for key, cell in summary.cells.items()
        if key[-1] == variant and metric in cell and all(key[each] == group for each in other)
    ]
    return sorted(found)


def half(moments: Moments) -> float:
    return 0.0 if math.isnan(moments.half_width) else moments.half_width


def curves(panel: Axes, lines: Mapping[str, Sequence[tuple[float, float, float]]]) -> None:
    """Draw a few lines, each with its band; lines that lie on each other show by their marks."""
    for place, (name, points) in enumerate(lines.items()):
        if points:
            x, mean, width = np.array(points).T
            colour = COLOURS[place % len(COLOURS)]
            mark = MARKERS[place % len(MARKERS)] if len(points) <= 40 else ""
            panel.plot(
                x, mean, color=colour, marker=mark, markersize=6 - place % 4, fillstyle="none", label=drawable(name)
            )
            panel.fill_between(x, mean - width, mean + width, color=colour, alpha=0.2, linewidth=0)


def bundle(panel: Axes, lines: Mapping[str, Sequence[tuple[float, float, float]]]) -> None:
    """Draw many lines as their median and the bands that hold half and nine tenths of them."""
    by_key: dict[float, list[float]] = {}
    for points in lines.values():
        for key, mean, _ in points:
            by_key.setdefault(key, []).append(mean)
    x = sorted(by_key)
    bands = np.array([np.quantile(by_key[each], (0.05, 0.25, 0.5, 0.75, 0.95)) for each in x])
    low, lower, middle, upper, high = bands.T
    panel.fill_between(
        x, low, high, color=COLOURS[0], alpha=0.15, linewidth=0, label=f"nine tenths of {len(lines)} variants"
    )
    panel.fill_between(x, lower, upper, color=COLOURS[0], alpha=0.3, linewidth=0, label="half of them")
    panel.plot(x, middle, color=COLOURS[0], label="median")


def choices(summary: Summary, metrics: Sequence[str]) -> Figure:
    """Draw each metric at each choice of one key of words, a mark per variant."""
    (place,) = varying(summary)
    names = labels(summary, place)
    figure, axes = panels(len(metrics), min(2, len(metrics)), max(1.75, 0.16 * len(names) + 0.6))
    variants = summary.variants[:LINES]
    for panel, metric in zip(axes, metrics, strict=True):
        for order, variant in enumerate(variants):
            cells = {
                key[place]: cell[metric] for key, cell in summary.cells.items() if key[-1] == variant and metric in cell
            }
            rows = np.array([names.index(name) for name in cells]) + 0.6 * ((order + 0.5) / len(variants) - 0.5)
            panel.errorbar(
                [each.mean for each in cells.values()],
                rows,
                xerr=[half(each) for each in cells.values()],
                fmt=MARKERS[order % len(MARKERS)],
                color=COLOURS[order % len(COLOURS)],
                markersize=4,
                linewidth=1,
                label=drawable(variant),
            )
        step = max(1, len(names) // 60)
        panel.set_yticks(range(0, len(names), step), [drawable(name) for name in names[::step]], parse_math=False)
        panel.invert_yaxis()
        panel.set_xlabel(spoken(metric))
    legend(figure, axes[0])
    return figure


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
    figure.colorbar(ScalarMappable(scale, MAP), ax=axes, label=spoken(metric), shrink=0.8)
    return figure


def parallel(summary: Summary, metric: str, places: Sequence[int]) -> Figure:
    """Draw an upright axis per key and a line per combination, coloured by its mean.

    More combinations than can be told apart are drawn as the mean of all that share two neighbouring values.
    """
    names = [*(summary.axes[place] for place in places), "variant"]
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
    figure.colorbar(ScalarMappable(scale, MAP), ax=panel, label=spoken(metric))
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


def spread(summary: Summary, metrics: Sequence[str]) -> Figure:
    """Draw how each metric spreads over the seeds: range, half of all numbers if they are normal, and the mean."""
    figure, axes = panels(len(metrics), min(2, len(metrics)), max(1.2, 0.2 * len(summary.variants) + 0.6))
    for panel, metric in zip(axes, metrics, strict=True):
        for row, variant in enumerate(summary.variants):
            moments = next(
                (cell[metric] for key, cell in summary.cells.items() if key[-1] == variant and metric in cell), None
            )
            if moments is not None:
                deviation = 0.674 * math.sqrt(moments.squares / max(1, moments.count - 1))
                box = [max(moments.least, moments.mean - deviation), min(moments.most, moments.mean + deviation)]
                panel.plot([moments.least, moments.most], [row, row], color="0.6", linewidth=1)
                panel.plot(box, [row, row], color=COLOURS[0], linewidth=5, solid_capstyle="butt")
                panel.plot([moments.mean], [row], "o", color="black", markersize=3)
        panel.set_yticks(range(len(summary.variants)), [drawable(name) for name in summary.variants], parse_math=False)
        panel.set_ylim(len(summary.variants) - 0.5, -0.5)
        panel.set_xlabel(spoken(metric))
    return figure


def in_order(names: Sequence[str]) -> list[str]:
    """Return labels in the order of their numbers, or words in their own."""
    return sorted(names, key=number) if all(map(is_number, names)) else list(names)


def level(order: Sequence[str], label: str) -> float:
    """Return the height of a label on an upright axis, from 0 to 1."""
    return 0.5 if len(order) == 1 else order.index(label) / (len(order) - 1)


def ends(numbers: Array) -> tuple[float, float]:
    return float(np.nanmin(numbers)), float(np.nanmax(numbers))


def same_scale(axes: Sequence[Axes]) -> None:
    """Give panels that are compared one scale."""
    if axes:
        low, high = min(each.get_ylim()[0] for each in axes), max(each.get_ylim()[1] for each in axes)
        for each in axes:
            each.set_ylim(low, high)


def name_ticks(axis: Any, names: Sequence[str], most: int) -> None:
    """Name the places of a heat map, as many as can be read."""
    places = range(0, len(names), max(1, math.ceil(len(names) / most)))
    axis.set_ticks(places, [drawable(names[place]) for place in places], parse_math=False)


def legend(figure: Figure, panel: Axes) -> None:
    """Name the lines of all panels once, above them."""
    handles, names = panel.get_legend_handles_labels()
    if len(handles) > 1:
        found = figure.legend(handles, names, loc="outside upper left", ncols=4)
        for text in found.get_texts():
            text.set_parse_math(False)
