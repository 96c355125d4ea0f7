"""The data of the explorer on a sweep's page: the cells of the sweep, and the initial view."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from attn_exp.arrays import Shape
from attn_exp.experiment.row import column_title, is_deep
from attn_exp.report.sweep_plots import Numbers, Plotted, is_number, labels, number, spaced_by_factors

MOST_CELLS = 3000
"""Maximum number of cells, since a larger page would be slow; the plots and the table show the same numbers."""


def explored(plotted: Plotted, metrics: Iterable[str], first: str) -> dict[str, Any] | None:
    """Return the cells of a sweep, ready for JSON, with its plotted metrics and `metrics`, starting with `first`.

    Return None if there are too many cells, or if no setting varies.
    """
    places = plotted.varying
    if not places or len(plotted.cells) > MOST_CELLS:
        return None
    names = list(dict.fromkeys((*plotted.metrics, *metrics)))
    names.sort(key=lambda name: name != first)
    axes = [axis_data(plotted, place) for place in (*places, len(plotted.axes))]
    known = [{label: place for place, label in enumerate(axis["labels"])} for axis in axes]
    cells = [
        {
            "at": [known[order][key[place]] for order, place in enumerate((*places, -1))],
            "numbers": [interval(cell.get(name)) for name in names],
        }
        for key, cell in plotted.cells.items()
    ]
    titles, deep = list(map(column_title, names)), list(map(is_deep, names))
    return {"axes": axes, "metrics": titles, "deep": deep, "cells": cells, "start": initial_view(axes, cells)}


def axis_data(plotted: Plotted, place: int) -> dict[str, Any]:
    named = place < len(plotted.axes)
    names = labels(plotted, place) if named else list(dict.fromkeys(key[-1] for key in plotted.cells))
    values = list(map(number, names)) if named and all(map(is_number, names)) else None
    if values is not None:
        names = [label for _, label in sorted(zip(values, names, strict=True))]
        values = sorted(values)
    name = plotted.axes[place] if named else "variant"
    return {"name": name, "labels": names, "values": values, "log": values is not None and spaced_by_factors(values)}


def initial_view(axes: Sequence[dict[str, Any]], cells: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the axes (by index) that the explorer initially uses for x, colours and panels.

    A numeric setting is shown along x. Of the other settings, the one with which the first metric varies most is shown
    by colour, so that its values share one panel, and the next one by panels.
    """
    settings = list(range(len(axes) - 1))
    weights = explained(axes, cells)
    along = max(
        settings,
        key=lambda place: (axes[place]["values"] is not None and len(axes[place]["labels"]) > 2, weights[place]),
    )
    others = [place for place in (*settings, len(axes) - 1) if place != along and len(axes[place]["labels"]) > 1]
    others.sort(key=lambda place: -weights[place])
    colour, panel, *_ = *others, -1, -1
    return {"x": along, "colour": colour, "panel": panel}


def explained(axes: Sequence[dict[str, Any]], cells: Sequence[dict[str, Any]]) -> list[float]:
    """Return how much the means of the first metric vary along each axis, alone and in interactions.

    This is the mean squared deviation of a cell from the mean over that axis, at its place along all other axes.
    """
    known = [(cell["at"], cell["numbers"][0][0]) for cell in cells if cell["numbers"] and cell["numbers"][0]]
    weights = []
    for place in range(len(axes)):
        groups: dict[Shape, list[float]] = {}
        for at, mean in known:
            groups.setdefault((*at[:place], *at[place + 1 :]), []).append(mean)
        squares = [(mean - sum(group) / len(group)) ** 2 for group in groups.values() for mean in group]
        weights.append(sum(squares) / max(1, len(squares)))
    return weights


def interval(cell: Numbers | None) -> list[float] | None:
    if cell is None:
        return None
    half = 0.0 if math.isnan(cell.half_width) else cell.half_width
    return [cell.mean, half, cell.count, cell.least, cell.most]
