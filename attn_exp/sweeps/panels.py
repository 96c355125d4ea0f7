"""What every plot of a sweep is made of: panels, labels in order, scales and legends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attn_exp.arrays import Array
from attn_exp.report.charts.matplotlib_figure import WIDTH, drawable
from attn_exp.sweeps.answers.totals import Moments, Summary


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


def panels(count: int, across: int, height: float = 1.75) -> tuple[Figure, list[Axes]]:
    """Return a figure of full width with so many panels."""
    down = -(-count // across)
    figure = Figure(figsize=(WIDTH, 0.55 + down * height), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).ravel().tolist()
    for spare in grid[count:]:
        spare.set_visible(False)
    return figure, grid[:count]


def half(moments: Moments) -> float:
    return 0.0 if math.isnan(moments.half_width) else moments.half_width


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
