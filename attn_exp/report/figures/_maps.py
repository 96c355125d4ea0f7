"""Maps of weights side by side, on one scale of colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure as Drawing

from attn_exp.report.drawing import LINE, axes_at, heat, name_ticks, without_labels
from attn_exp.report.lettering import drawable, fitted, widest
from attn_exp.report.views import Head, top

COLOURS = "Blues"
SCALE = "scale"
"""The label of the axes that explain the colours."""

GAP, NARROWEST, WIDEST = 0.12, 1.05, 14
"""Inches between two maps; the width below which no map falls while there is room; and the widest drawing for that."""


class Reading(NamedTuple):
    """How maps are read: what a cell is, which power of it is coloured, and what a column is."""

    unit: str = "weight"
    gamma: float = 1.0
    across: str = "key"


WEIGHTS = Reading()


class Grid(NamedTuple):
    """How maps stand: so many `across` and down, each `side` inches wide and `tall`, above the names of columns."""

    across: int
    down: int
    side: float
    tall: float
    slanted: bool
    bottom: float


def arranged(count: int, rows: list[str], columns: list[str], room: float, height: float | None) -> Grid:
    """Return how maps stand: as many side by side as are readable, up to 4; in a given height, as they are largest."""
    if height is None:
        across = max(1, min(count, 4, int(room / NARROWEST)))
        return grid(count, rows, columns, across, min(2.4, (room - GAP * (across - 1)) / across))
    grids = []
    for across in range(1, count + 1):
        wide = grid(count, rows, columns, across, (room - GAP * (across - 1)) / across)
        high = ((height - wide.bottom) / wide.down - 2 * LINE) * wide.side / wide.tall
        grids.append(grid(count, rows, columns, across, max(0.1, min(wide.side, high))))
    return max(grids, key=lambda grid: grid.side)


def grid(count: int, rows: list[str], columns: list[str], across: int, side: float) -> Grid:
    """Return so many maps across, of this width; a map is as tall as it has rows for its columns, within reason."""
    slanted = widest(columns) > 0.9 * side / len(columns)
    tall = side * max(0.4, min(2.5, len(rows) / len(columns)))
    return Grid(across, -(-count // across), side, tall, slanted, 0.22 + (widest(columns) if slanted else LINE))


def weight_maps(
    maps: Sequence[Head],
    rows: list[str],
    columns: list[str],
    width: float,
    means: Reading = WEIGHTS,
    height: float | None = None,
) -> Drawing:
    """Show maps with their titles side by side, on one colour scale from zero.

    In a given height they are as large as they can be; where they would be too small to read, the page is larger.
    """
    left, right = widest(rows) + 0.32, 0.55
    stand = arranged(len(maps), rows, columns, width - left - right, height)
    if height is not None and stand.side < NARROWEST and width < WIDEST:
        return weight_maps(maps, rows, columns, 1.2 * width, means, 1.2 * height)
    across, side, tall, slanted, bottom = stand.across, stand.side, stand.tall, stand.slanted, stand.bottom
    pitch = tall + LINE * 2
    height = bottom + stand.down * pitch
    drawing = Drawing(figsize=(width, height))
    end = top(head.weights for head in maps)
    for place, head in enumerate(maps):
        line, column = divmod(place, across)
        box = (left + column * (side + GAP), bottom + (stand.down - 1 - line) * pitch, side, tall)
        axes = axes_at(drawing, box)
        heat(axes, head.weights, end, COLOURS, side / len(columns)).set_norm(PowerNorm(means.gamma, 0, end))
        axes.set_title(short_title(head, side), parse_math=False)
        last = place + across >= len(maps)
        name_ticks(axes, rows if column == 0 else [], columns if last else [], slanted, (side, tall))
    drawing.text(0.01 / width + 0.012, (bottom + tall / 2) / height, "query", rotation=90, va="center", ha="left")
    drawing.text((left + side / 2) / width, 0.03 / height, means.across, va="bottom", ha="center")
    bar = axes_at(drawing, (left + across * (side + GAP), bottom + (stand.down - 1) * pitch, 0.1, tall))
    colour_scale(bar, end).set_norm(PowerNorm(means.gamma, 0, end))
    bar.set_title(means.unit, loc="left")
    return drawing


def colour_scale(axes: Axes, top: float) -> Any:
    """Draw the colours from 0 to `top`, with numbers at the right."""
    axes.set_label(SCALE)
    shades = np.linspace(0, top, 256)[:, None]
    image = axes.imshow(shades, cmap=COLOURS, aspect="auto", origin="lower", extent=(0, 1, 0, top))
    axes.tick_params(labelbottom=False, bottom=False, labelleft=False, left=False, labelright=True, right=True)
    axes.spines[["top", "right"]].set_visible(True)
    axes.yaxis.set_major_formatter("{x:.2g}")
    without_labels(axes)
    return image


def short_title(head: Head, width: float) -> str:
    """Return the title of a map, shortened to this width; the number of a head stays."""
    title = drawable(head.title)
    if head.number is None or widest([title]) <= width:
        return fitted(title, width)
    return f"{fitted(drawable(head.variants), width - widest([f' {head.number}']))} {head.number}"
