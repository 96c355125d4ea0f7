"""Many heads at once: a small map of each, with the pattern that takes most of its weight."""

from __future__ import annotations

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment import patterns
from attn_exp.experiment.comparison import settled_as
from attn_exp.report import words
from attn_exp.report.charts.chart import LINE, Box, Chart, Heat, Part, Words
from attn_exp.report.figures._layouts import BAR, COLOURS, closed_in, colour_scale
from attn_exp.report.figures.figure import Figure, best_of, extent_of
from attn_exp.report.pixels import coarse
from attn_exp.report.views import MANY, Views, colours, maps_in, top

ACROSS, CELLS = 12, 48
"""Maps in a line, and the most rows and columns of one; more are drawn as the means of neighbours."""

NARROWEST = 0.47
"""Inches: a narrower map has no room for what stands above it."""

ABOVE, RIGHT = 0.31, 0.6
"""Inches: the height of what stands above a map, and the room for the scale of colours."""


def wanted(views: Views) -> bool:
    """Few heads have room for whole maps, which another figure shows; maps of one weight each show nothing."""
    return maps_in(views) > MANY and any(panel.weights[0].size > 1 for panel in views.panels)


def plan(views: Views, width: float, height: float | None = None) -> Chart:
    """Show a map of each head, queries down, keys across; in a given height, in lines that make them largest."""
    most = min(ACROSS, int((width - RIGHT) / NARROWEST))
    if height is None:
        return in_lines(views, width, most, None)
    fitting = [across for across in range(1, most + 1) if side_in(views, width, height, across) >= NARROWEST]
    if not fitting:
        return best_of(lambda wide: plan(views, wide), extent_of, width, height)
    best = max(fitting, key=lambda across: side_in(views, width, height, across))
    return in_lines(views, width, best, side_in(views, width, height, best))


def side_in(views: Views, width: float, height: float, across: int) -> float:
    """Return how wide maps can be, so many in a line."""
    lines = sum(-(-len(panel.weights) // across) for panel in views.panels)
    return min((width - RIGHT) / across, (height - LINE * (len(views.panels) + 0.5)) / lines - ABOVE)


def in_lines(views: Views, width: float, most: int, side: float | None) -> Chart:
    """Show the maps in lines, each head's number and its strongest pattern above its map."""
    lines = [(panel, start) for panel in views.panels for start in range(0, len(panel.weights), most)]
    across = max(len(panel.weights[start : start + most]) for panel, start in lines)
    side = (width - RIGHT) / max(across, min(6, most)) if side is None else side
    top_of, height = LINE / 2, LINE * (len(views.panels) + 0.5) + (side + ABOVE) * len(lines)
    parts: list[Part] = []
    end, power = top(panel.weights for panel in views.panels), colours(views).power
    for panel, start in lines:
        if start == 0:
            title = views.lettering.fitted(views.lettering.letters(panel.title), width / 2)
            parts.append(Words(title, (0.02, height - top_of - LINE)))
            top_of += LINE
        top_of += side + ABOVE
        below = height - top_of
        shut = closed_in(views, panel)
        mosaic = in_line(panel.weights[start : start + most], across)
        veil = None if shut is None else in_line(shut[start : start + most].astype(float), across) == 1
        parts.append(Heat(Box(0.02, below, side * across, side), mosaic, end, COLOURS, power, closed=veil))
        problem, rules = views.comparison.problem, settled_as(views.comparison, panel.variants[0]).rules
        memory = problem.memory is not None
        numbers = patterns.measured(panel.weights, problem.key_tokens, int(rules.offset), memory)
        for head in range(start, min(start + most, len(panel.weights))):
            at = 0.02 + side * (head - start + 0.02), below + side + 0.02
            parts.append(Words(told(numbers, head), at, 7))
    bar = Box(width - 0.45, height - 2 * LINE - ABOVE - side, BAR, side)
    return Chart(width, height, (*parts, colour_scale(bar, end, power, words.WEIGHT, 0.45)))


def in_line(heads: Array, across: int) -> Array:
    """Return maps side by side as one matrix; what parts them is no number, and stays white."""
    small = [coarse(matrix, CELLS) for matrix in heads]
    rows, columns = small[0].shape
    gap = max(1, columns // 16)
    mosaic = np.full((rows, across * (columns + gap)), np.nan)
    for place, matrix in enumerate(small):
        mosaic[:, place * (columns + gap) : place * (columns + gap) + columns] = matrix
    return mosaic


def told(numbers: dict[str, Array], head: int) -> str:
    """Return the number of a head, counted from 1, and its strongest pattern, on two short lines."""
    name, share = patterns.strongest(numbers, head)
    return f"{head + 1}: {share:.0%}\n{name}" if name else str(head + 1)


FIGURE = Figure(
    caption=(
        "Every head at once: queries down, keys across, one colour scale; above each its "
        "number and the known pattern that takes most of its weight."
    ),
    plan=plan,
    wanted=wanted,
    in_page=False,
    place=15,
)
