"""Maps of weights side by side, on one scale of colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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

GAP, NARROWEST = 0.12, 1.05
"""Inches between two maps, and the width below which no map falls while there is room."""


def weight_maps(
    maps: Sequence[Head],
    rows: list[str],
    columns: list[str],
    width: float,
    unit: str = "weight",
    gamma: float = 1.0,
    across_is: str = "key",
) -> Drawing:
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
    drawing = Drawing(figsize=(width, height))
    end = top(head.weights for head in maps)
    for place, head in enumerate(maps):
        line, column = divmod(place, across)
        box = (left + column * (side + GAP), bottom + (down - 1 - line) * pitch, side, tall)
        axes = axes_at(drawing, box)
        heat(axes, head.weights, end, COLOURS, side / len(columns)).set_norm(PowerNorm(gamma, 0, end))
        axes.set_title(short_title(head, side), parse_math=False)
        last = place + across >= len(maps)
        name_ticks(axes, rows if column == 0 else [], columns if last else [], slanted, (side, tall))
    drawing.text(0.01 / width + 0.012, (bottom + tall / 2) / height, "query", rotation=90, va="center", ha="left")
    drawing.text((left + side / 2) / width, 0.03 / height, across_is, va="bottom", ha="center")
    bar = axes_at(drawing, (left + across * (side + GAP), bottom + (down - 1) * pitch, 0.1, tall))
    colour_scale(bar, end).set_norm(PowerNorm(gamma, 0, end))
    bar.set_title(unit, loc="left")
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
