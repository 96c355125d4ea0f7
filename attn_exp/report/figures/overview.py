"""An overview of many heads: a small map of each, with its strongest pattern."""

from __future__ import annotations

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.targets import find_strongest, measure_patterns
from attn_exp.experiment.row import find_settled
from attn_exp.report.charts.chart import LINE, Box, Chart, Heat, Part, Text, fit_text
from attn_exp.report.charts.layout import BAR, COLOURS, colour_scale
from attn_exp.report.escapes import visible
from attn_exp.report.figures.figure import Figure
from attn_exp.report.pixels import average_blocks
from attn_exp.report.views import MANY, Views, colours, count_maps, largest_weight
from attn_exp.report.walk import find_masked_in_panel

ACROSS, CELLS = 12, 48
"""Maximum number of maps per row, and of rows and columns of a map. A larger map is averaged over blocks."""

NARROWEST = 0.47
"""Minimum width of a map, in inches; the text above it would not fit over a narrower one."""

ABOVE, RIGHT = 0.31, 0.6
"""The height of the text above a map, and the room for the colour scale, in inches."""

SHOWN = 0.94
"""The share of a grid cell that its map fills; the rest of the cell is the gap before the next map."""


def wanted(views: Views) -> bool:
    """Return whether there are many heads, and some map has more than one weight; a few heads get larger maps."""
    return count_maps(views) > MANY and any(panel.weights[0].size > 1 for panel in views.panels)


def plan(views: Views, width: float, height: float | None = None) -> Chart:
    most_per_row = min(ACROSS, int((width - RIGHT) / NARROWEST))
    most_heads = max(len(panel.weights) for panel in views.panels)
    # `pitch` is the width of a map with the gap after it; six fit in a row even if there are fewer heads
    pitch = (width - RIGHT) / max(min(most_heads, most_per_row), min(6, most_per_row))
    scale_end, power = largest_weight(panel.weights for panel in views.panels), colours(views).power
    parts, y = list[Part](), LINE / 2  # y is where the next part starts
    for panel in views.panels:
        y += LINE
        parts.append(Text(1.4, 72 * y - 2, fit_text(visible(panel.title), width / 2)))
        panel_masked, problem = find_masked_in_panel(views, panel), views.comparison.problem
        offset = int(find_settled(views.comparison, panel.variants[0]).rules.offset)
        patterns = measure_patterns(panel.weights, problem.key_tokens, offset, problem.memory is not None)
        for head, matrix in enumerate(panel.weights):
            y += pitch + ABOVE if head % most_per_row == 0 else 0  # a new row, which ends at y
            x = 0.02 + pitch * (head % most_per_row)
            is_masked = None if panel_masked is None else average_blocks(panel_masked[head].astype(float), CELLS) == 1
            box = Box(x, y - pitch, SHOWN * pitch, pitch)
            parts.append(Heat(box, average_blocks(matrix, CELLS), scale_end, COLOURS, power, is_masked=is_masked))
            lines = enumerate(title_lines(patterns, head))
            parts += [Text(72 * (x + 0.02), 72 * (y - pitch) - 3 - 9 * line, text, 7) for line, text in lines]
    parts += colour_scale(Box(width - 0.45, 2 * LINE + ABOVE, BAR, pitch), scale_end, power, "weight", 0.45)
    return Chart(width, y + LINE / 2, tuple(parts))


def title_lines(patterns: dict[str, Array], head: int) -> list[str]:
    """Return the lines above a map from bottom to top: its strongest pattern, and the number of the head."""
    name, share = find_strongest(patterns, head)
    return [name, f"{head + 1}: {share:.0%}"] if name else [str(head + 1)]


FIGURE = Figure(
    caption=(
        "All heads at once: queries down, keys across, one colour scale; above each map, the "
        "number of the head and the pattern that gets the largest share of its weight."
    ),
    plan=plan,
    wanted=wanted,
    in_page=False,
    place=15,
)
