"""Charts as a reader sees them: nothing leaves the sheet, and no two things lie on each other."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from attn_exp.report.charts.chart import Chart, Heat, Plot, Text, width
from attn_exp.report.charts.layout import shapes_of

Extent = tuple[float, float, float, float]
"""Left, top, right and bottom in points."""


def extent(text: Text) -> Extent:
    """Return what a text covers, with the ascent and descent of DejaVu Sans."""
    long, above, below = 72 * width(text.text, text.size), 0.76 * text.size, 0.236 * text.size
    before = {"left": 0.0, "center": long / 2, "right": long}[text.side]
    if text.turned:
        return text.x - above, text.y + before - long, text.x + below, text.y + before
    return text.x - before, text.y - above, text.x - before + long, text.y + below


def overlap(one: Extent, other: Extent) -> bool:
    return all(max(one[at], other[at]) < min(one[at + 2], other[at + 2]) - 0.5 for at in (0, 1))


def check_layout(chart: Chart) -> None:
    texts = {extent(text): text.text for text in shapes_of(chart) if isinstance(text, Text) and text.text.strip()}
    boxes = [
        (72 * box.left, 72 * box.top, 72 * (box.left + box.width), 72 * (box.top + box.height))
        for box in (part.box for part in chart.parts if isinstance(part, Heat | Plot))
    ]
    for left, top, right, bottom in (*texts, *boxes):
        assert left >= -1 and top >= -1 and right <= 72 * chart.width + 1 and bottom <= 72 * chart.height + 1
    for plot in (part for part in chart.parts if isinstance(part, Plot)):
        for axis, points in [pair for stroke in plot.strokes for pair in ((plot.x, stroke.x), (plot.y, stroke.y))]:
            low, high = sorted((axis.low, axis.high))
            assert np.nanmin(points) >= low - 1e-9 and np.nanmax(points) <= high + 1e-9
    assert not [(texts[one], texts[other]) for one, other in combinations(texts, 2) if overlap(one, other)]
    assert not [pair for pair in combinations(boxes, 2) if overlap(*pair)]
    for box in boxes:
        beside = [place for place in texts if place[0] < box[0] - 1]  # others may stand in a plot
        assert not [texts[place] for place in beside if overlap(place, box)]
