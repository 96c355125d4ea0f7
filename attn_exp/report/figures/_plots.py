"""What figures of lines share: axes below a legend that has as many lines as its entries need."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attn_exp.report.charts.chart import LINE, NARROW, Axis, Box, Chart, Plot, Stroke
from attn_exp.report.charts.widths import Lettering

HIGH, LEAST = 1.85, 1.0
"""Inches: the usual height of axes, and the least."""


KEY = 0.4
"""Inches that an entry of a legend takes beside its letters."""


def columns_in(width: float) -> int:
    """Return how many entries of a legend stand side by side in a chart of this width."""
    return 2 if width > NARROW else 1


def inside(entries: int, bottom: float, width: float, height: float | None) -> Box:
    """Return where axes stand, as high as is usual or as the height leaves, below a legend of so many entries."""
    around = bottom + 0.1 + LINE * -(-entries // columns_in(width))
    return Box(0.55, bottom, width - 0.7, HIGH if height is None else max(LEAST, height - around))


def below_legend(strokes: Sequence[Stroke], x: Axis, y: Axis, box: Box, width: float, lettering: Lettering) -> Chart:
    """Return a chart of strokes between two axes in their box, with the legend above."""
    columns = columns_in(width)
    room = room_in([stroke.label for stroke in strokes if stroke.label], columns, box.width, lettering)
    shown = tuple(
        stroke._replace(label=lettering.fitted(stroke.label, room)) if stroke.label else stroke for stroke in strokes
    )
    lines = -(-sum(bool(stroke.label) for stroke in strokes) // columns)
    height = box.bottom + box.height + 0.1 + LINE * lines
    return Chart(width, height, (Plot(box, shown, x, y, columns),))


def room_in(labels: Sequence[str], columns: int, width: float, lettering: Lettering) -> float:
    """Return how wide an entry may be: as wide as it is where all columns fit together, or else each its part."""
    parts = np.array_split(np.arange(len(labels)), columns)
    needed = [lettering.widest(labels[place] for place in part) for part in parts]
    return max(needed) if sum(needed) + KEY * columns <= width else width / columns - KEY


def beyond(strokes: Sequence[Stroke]) -> float:
    """Return where an upward axis ends: a twentieth above what is drawn, as Matplotlib leaves it."""
    values = np.concatenate([stroke.y for stroke in strokes])
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    if high - low <= abs(high) * 1e-15:
        spread = 0.05 * abs(high) or 0.05
        low, high = low - spread, high + spread
    return high + 0.05 * (high - low)
