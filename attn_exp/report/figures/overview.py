"""Many heads at once: a small map of each, with the pattern that takes most of its weight."""

from __future__ import annotations

import numpy as np

from attn_exp.experiment import patterns
from attn_exp.experiment.splits import settled_as
from attn_exp.report.charts.chart import LINE, Array, Box, Chart, Heat, Part, Words
from attn_exp.report.figures._maps import BAR, COLOURS, colour_scale
from attn_exp.report.figures._sizes import best_of, extent_of
from attn_exp.report.figures.figure import Figure
from attn_exp.report.pixels import coarse
from attn_exp.report.views import MANY, Panel, Views, maps_in, top

ACROSS, CELLS = 12, 48
"""Maps in a line, and the most rows and columns of one; more are drawn as the means of neighbours."""

NARROWEST = 0.47
"""Inches: a narrower map has no room for what stands above it."""


def wanted(views: Views) -> bool:
    """Few heads have room for whole maps, which another figure shows."""
    return maps_in(views) > MANY


def plan(views: Views, width: float, height: float | None = None) -> Chart:
    """Show a map of each head, queries down, keys across; in a given height, in the width that fills it best."""
    if height is None:
        return of_width(views, width)
    return best_of(lambda wide: of_width(views, wide), extent_of, width, height)


def of_width(views: Views, width: float) -> Chart:
    """Show the maps in lines, each head's number and its strongest pattern above its map."""
    most = min(ACROSS, int((width - 0.6) / NARROWEST))
    lines = [(panel, start) for panel in views.panels for start in range(0, len(panel.weights), most)]
    across = max(len(panel.weights[start : start + most]) for panel, start in lines)
    side = (width - 0.6) / max(across, min(6, most))
    pitch = side + 3 * LINE
    height, size = LINE + pitch * len(lines), min(7, 9.8 * side)
    parts: list[Part] = []
    end = top(panel.weights for panel in views.panels)
    for place, (panel, start) in enumerate(lines):
        below = height - (place + 1) * pitch
        mosaic = in_line(panel.weights[start : start + most], across)
        title = views.lettering.fitted(views.lettering.letters(panel.title), width / 2)
        parts.append(Heat(Box(0.02, below, side * across, side), mosaic, end, COLOURS, 0.5))
        parts.append(Words(title, (0.02, below + side + 1.6 * LINE)))
        numbers = numbers_of(views, panel)
        for head in range(start, min(start + most, len(panel.weights))):
            at = 0.02 + side * (head - start + 0.02), below + side + 0.02
            parts.append(Words(told(numbers, head), at, size))
    bar = Box(width - 0.45, height - pitch, BAR, side)
    return Chart(width, height, (*parts, colour_scale(bar, end, 0.5, "weight", 0.45)))


def in_line(heads: Array, across: int) -> Array:
    """Return maps side by side as one matrix; what parts them is no number, and stays white."""
    small = [coarse(matrix, CELLS) for matrix in heads]
    rows, columns = small[0].shape
    gap = max(1, columns // 16)
    mosaic = np.full((rows, across * (columns + gap)), np.nan)
    for place, matrix in enumerate(small):
        mosaic[:, place * (columns + gap) : place * (columns + gap) + columns] = matrix
    return mosaic


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
    plan=plan,
    wanted=wanted,
    place=15,
)
