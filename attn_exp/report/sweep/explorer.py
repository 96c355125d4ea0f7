"""What the page of a sweep draws with: the mean of every combination, and which setting runs along x at first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from attn_exp.experiment.row import is_deep, titled
from attn_exp.report.sweep.plotted import Numbers, Plotted

MOST_CELLS = 3000
"""A page with more numbers than these would be slow; its pictures and its table say the same."""
NONE = -1


def explored(plotted: Plotted, metrics: Iterable[str]) -> dict[str, Any] | None:
    """Return the cells of a sweep, ready for JSON, with all that is worth drawing and these metrics.

    None where there are too many cells, or nothing varies.
    """
    places = plotted.varying
    if not places or len(plotted.cells) > MOST_CELLS:
        return None
    names = list(dict.fromkeys((*plotted.metrics, *metrics)))
    axes = [axis_of(plotted, place) for place in (*places, len(plotted.axes))]
    known = [{label: place for place, label in enumerate(axis["labels"])} for axis in axes]
    keys = [(*places, -1)] * len(plotted.cells)
    cells = [
        {
            "at": [known[order][key[place]] for order, place in enumerate(at)],
            "numbers": [interval(cell.get(name)) for name in names],
        }
        for at, (key, cell) in zip(keys, plotted.cells.items(), strict=True)
    ]
    titles = [titled(name) for name in names]
    deep = [is_deep(name) for name in names]
    return {"axes": axes, "metrics": titles, "deep": deep, "cells": cells, "start": start(axes)}


def axis_of(plotted: Plotted, place: int) -> dict[str, Any]:
    """Return a setting, or the variant as the last: its values in order, and whether they are numbers."""
    named = place < len(plotted.axes)
    labels = list(dict.fromkeys(key[place if named else -1] for key in plotted.cells))
    values = numbers(labels) if named else None
    if values is not None:
        labels = [label for _, label in sorted(zip(values, labels, strict=True))]
        values = sorted(values)
    name = plotted.axes[place] if named else "variant"
    return {"name": name, "labels": labels, "values": values, "log": values is not None and spaced_by_factors(values)}


def numbers(labels: Sequence[str]) -> list[float] | None:
    """Return labels as numbers; None where one is a word, or a stretch of numbers."""
    try:
        values = [float(label) for label in labels]
    except ValueError:
        return None
    return values if all(map(math.isfinite, values)) else None


def spaced_by_factors(values: Sequence[float]) -> bool:
    """Say whether numbers in order grow by factors rather than by steps, so that a logarithmic axis spreads them."""
    if len(values) < 3 or values[0] <= 0:
        return False
    steps = [after - before for before, after in itertools.pairwise(values)]
    return max(steps) >= 3 * min(steps) and steps[-1] >= 1.5 * steps[0]


def start(axes: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return what is drawn at first: the setting of most numbers along x, a colour a variant, a panel for a third."""
    settings = list(range(len(axes) - 1))
    along = max(settings, key=lambda place: (axes[place]["values"] is not None, len(axes[place]["labels"])))
    others = [place for place in settings if place != along]
    variants = len(axes) - 1
    if len(axes[variants]["labels"]) == 1 and others:
        return {"x": along, "colour": others[0], "panel": others[1] if len(others) > 1 else NONE}
    return {"x": along, "colour": variants, "panel": others[0] if others else NONE}


def interval(cell: Numbers | None) -> list[float] | None:
    """Return mean, half of the interval, count and range of a cell's numbers; None where there are none."""
    if cell is None:
        return None
    half = 0.0 if math.isnan(cell.half_width) else cell.half_width
    return [cell.mean, half, cell.count, cell.least, cell.most]
