"""What the page of a sweep draws with: the mean of every combination, and which setting runs along x at first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from attn_exp.experiment.row import is_deep, titled
from attn_exp.report.sweep.plotted import Numbers, Plotted
from attn_exp.report.sweep.plotted import labels as labels_of

MOST_CELLS = 3000
"""A page with more numbers than these would be slow; its pictures and its table say the same."""
NONE = -1


def explored(plotted: Plotted, metrics: Iterable[str], first: str) -> dict[str, Any] | None:
    """Return the cells of a sweep, ready for JSON, with all that is worth drawing and these metrics; `first` leads.

    None where there are too many cells, or nothing varies.
    """
    places = plotted.varying
    if not places or len(plotted.cells) > MOST_CELLS:
        return None
    names = list(dict.fromkeys((*plotted.metrics, *metrics)))
    names.sort(key=lambda name: name != first)
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
    return {"axes": axes, "metrics": titles, "deep": deep, "cells": cells, "start": start(axes, cells)}


def axis_of(plotted: Plotted, place: int) -> dict[str, Any]:
    """Return a setting, or the variant as the last: its values in order, and whether they are numbers."""
    named = place < len(plotted.axes)
    labels = labels_of(plotted, place) if named else list(dict.fromkeys(key[-1] for key in plotted.cells))
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


def start(axes: Sequence[dict[str, Any]], cells: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return what is drawn at first, of the first metric: a setting of numbers along x, and in colours what explains
    most of the rest, so that scaled and unscaled stand on one axis; what explains next has a panel each.
    """
    settings = list(range(len(axes) - 1))
    weights = explained(axes, cells)
    along = max(
        settings,
        key=lambda place: (axes[place]["values"] is not None and len(axes[place]["labels"]) > 2, weights[place]),
    )
    others = [place for place in (*settings, len(axes) - 1) if place != along and len(axes[place]["labels"]) > 1]
    others.sort(key=lambda place: -weights[place])
    colour, panel, *_ = *others, NONE, NONE
    return {"x": along, "colour": colour, "panel": panel}


def explained(axes: Sequence[dict[str, Any]], cells: Sequence[dict[str, Any]]) -> list[float]:
    """Return how much the means of the first metric vary along each axis, alone and together with others.

    It is the mean square of what each cell differs from the mean of those that differ from it along that axis alone.
    """
    known = [(cell["at"], cell["numbers"][0][0]) for cell in cells if cell["numbers"] and cell["numbers"][0]]
    weights = []
    for place in range(len(axes)):
        groups: dict[tuple[int, ...], list[float]] = {}
        for at, mean in known:
            groups.setdefault((*at[:place], *at[place + 1 :]), []).append(mean)
        squares = [(mean - sum(group) / len(group)) ** 2 for group in groups.values() for mean in group]
        weights.append(sum(squares) / max(1, len(squares)))
    return weights


def interval(cell: Numbers | None) -> list[float] | None:
    """Return mean, half of the interval, count and range of a cell's numbers; None where there are none."""
    if cell is None:
        return None
    half = 0.0 if math.isnan(cell.half_width) else cell.half_width
    return [cell.mean, half, cell.count, cell.least, cell.most]
