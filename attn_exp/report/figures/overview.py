"""Many heads at once: a small map of each, with the pattern that takes most of its weight."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure as Drawing

from attn_exp.experiment import patterns
from attn_exp.experiment.splits import settled_as
from attn_exp.report.drawing import LINE, Array, axes_at
from attn_exp.report.figures._maps import COLOURS, colour_scale
from attn_exp.report.figures.figure import Figure
from attn_exp.report.lettering import drawable, fitted
from attn_exp.report.pixels import coarse
from attn_exp.report.views import MANY, Panel, Views, maps_in, top

ACROSS, CELLS = 12, 48
"""Maps in a line, and the most rows and columns of one; more are drawn as the means of neighbours."""

NARROWEST = 0.47
"""Inches: a narrower map has no room for what stands above it."""


def wanted(views: Views) -> bool:
    """Few heads have room for whole maps, which another figure shows."""
    return maps_in(views) > MANY


def draw(views: Views, width: float) -> Drawing:
    """Show a map of each head, queries down, keys across, with its number and its strongest pattern above it."""
    most = min(ACROSS, int((width - 0.6) / NARROWEST))
    lines = [(panel, start) for panel in views.panels for start in range(0, len(panel.weights), most)]
    across = max(len(panel.weights[start : start + most]) for panel, start in lines)
    side = (width - 0.6) / max(across, min(6, most))
    pitch = side + 3 * LINE
    height, size = LINE + pitch * len(lines), min(7, 9.8 * side)
    drawing, end = Drawing(figsize=(width, height)), top(panel.weights for panel in views.panels)
    for place, (panel, start) in enumerate(lines):
        below = height - (place + 1) * pitch
        axes = axes_at(drawing, (0.02, below, side * across, side))
        draw_line(axes, panel.weights[start : start + most], across, end)
        drawing.text(0.02 / width, (below + side + 1.6 * LINE) / height, fitted(drawable(panel.title), width / 2))
        numbers = numbers_of(views, panel)
        for head in range(start, min(start + most, len(panel.weights))):
            left = 0.02 + side * (head - start + 0.02)
            words = told(numbers, head)
            drawing.text(left / width, (below + side + 0.02) / height, words, fontsize=size, linespacing=1.1)
    bar = axes_at(drawing, (width - 0.45, height - pitch, 0.1, side))
    colour_scale(bar, end).set_norm(PowerNorm(0.5, 0, end))
    bar.set_title("weight", loc="left")
    return drawing


def draw_line(axes: Any, heads: Array, across: int, end: float) -> None:
    """Draw maps side by side as one picture; what parts them is no number, and stays white."""
    small = [coarse(matrix, CELLS) for matrix in heads]
    rows, columns = small[0].shape
    gap = max(1, columns // 16)
    mosaic = np.full((rows, across * (columns + gap)), np.nan)
    for place, matrix in enumerate(small):
        mosaic[:, place * (columns + gap) : place * (columns + gap) + columns] = matrix
    axes.imshow(mosaic, norm=PowerNorm(0.5, 0, end), cmap=COLOURS, aspect="auto", interpolation="nearest")
    axes.set_axis_off()


def numbers_of(views: Views, panel: Panel) -> dict[str, Array]:
    """Return the patterns of a panel's heads."""
    problem, rules = views.comparison.problem, settled_as(views.comparison, panel.variants[0]).rules
    return patterns.measured(panel.weights, problem.key_tokens, int(rules.offset), problem.memory is not None)


def told(numbers: dict[str, Array], head: int) -> str:
    """Return the number of a head, counted from 1, and its strongest pattern."""
    name, share = patterns.strongest(numbers, head)
    return f"{head + 1}\n{name} {share:.0%}" if name else str(head + 1)


FIGURE = Figure(
    caption="Every head at once: queries down, keys across, coloured by square roots; above each its number and the "
    "known pattern that takes most of its weight.",
    draw=draw,
    wanted=wanted,
    place=15,
)
