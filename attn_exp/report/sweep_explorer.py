"""The data of the explorer on a sweep's page, ready for JSON: the cells of a `Plotted`, and an initial view.

Labels become indices. In a cell such as `{"at": [2, 0], "numbers": [[0.81, 0.05, 6, 0.7, 0.9]]}`, `at` has an index
into the labels of each axis that varies, and the last index is that of the variant. `numbers` has, for each metric,
what `interval_numbers` returns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from attn_exp.arrays import Shape
from attn_exp.experiment.row import column_title, is_deep
from attn_exp.report.sweep_plots import Numbers, Plotted, is_number, list_labels, parse_number, spaced_by_factors

MOST_CELLS = 3000
"""With more cells than this, a page has no explorer, since it would be slow; plots and tables show the same numbers."""


def make_explorer_data(plotted: Plotted, metrics: Iterable[str], first: str) -> dict[str, Any] | None:
    """Return the data of the explorer; None if there are too many cells, or if no setting varies.

    It contains the metrics that are plotted and those in `metrics`; `first` is put first.
    """
    varying = plotted.varying
    if not varying or len(plotted.cells) > MOST_CELLS:
        return None
    metric_names = list(dict.fromkeys((*plotted.metrics, *metrics)))
    metric_names.sort(key=lambda name: name != first)
    axes = [axis_data(plotted, index) for index in (*varying, len(plotted.axes))]
    indices = [{label: index for index, label in enumerate(axis["labels"])} for axis in axes]
    cell_data = [
        {
            "at": [indices[column][key[index]] for column, index in enumerate((*varying, -1))],
            "numbers": [interval_numbers(cell.get(name)) for name in metric_names],
        }
        for key, cell in plotted.cells.items()
    ]
    titles, deep = list(map(column_title, metric_names)), list(map(is_deep, metric_names))
    return {"axes": axes, "metrics": titles, "deep": deep, "cells": cell_data, "start": initial_view(axes, cell_data)}


def axis_data(plotted: Plotted, axis: int) -> dict[str, Any]:
    is_setting = axis < len(plotted.axes)
    names = list_labels(plotted, axis) if is_setting else list(dict.fromkeys(key[-1] for key in plotted.cells))
    values = list(map(parse_number, names)) if is_setting and all(map(is_number, names)) else None
    if values is not None:
        names = [label for _, label in sorted(zip(values, names, strict=True))]  # by number, not by appearance
        values = sorted(values)
    name = plotted.axes[axis] if is_setting else "variant"
    return {"name": name, "labels": names, "values": values, "log": values is not None and spaced_by_factors(values)}


def initial_view(axes: Sequence[dict[str, Any]], cells: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the axes, by index, that the explorer uses at first for x, for colours and for panels; -1 for none.

    A numeric setting is along x. Of the others, the one along which the first metric varies most gets the colours, so
    that its values are in the same panel. The next one gets the panels.
    """
    settings = list(range(len(axes) - 1))
    variation = measure_variation(axes, cells)
    x_axis = max(
        settings,
        key=lambda axis: (axes[axis]["values"] is not None and len(axes[axis]["labels"]) > 2, variation[axis]),
    )
    others = [axis for axis in (*settings, len(axes) - 1) if axis != x_axis and len(axes[axis]["labels"]) > 1]
    others.sort(key=lambda axis: -variation[axis])
    colour, panel, *_ = *others, -1, -1  # the first two of the others, if there are two
    return {"x": x_axis, "colour": colour, "panel": panel}


def measure_variation(axes: Sequence[dict[str, Any]], cells: Sequence[dict[str, Any]]) -> list[float]:
    """Return how much the first metric varies along each axis.

    Cells that agree on all other axes are a group. The result for an axis is the mean squared deviation of a cell from
    the mean of its group.
    """
    means = [(cell["at"], cell["numbers"][0][0]) for cell in cells if cell["numbers"] and cell["numbers"][0]]
    variation = []
    for axis in range(len(axes)):
        groups: dict[Shape, list[float]] = {}
        for position, mean in means:
            # cells with the same position on all other axes
            groups.setdefault((*position[:axis], *position[axis + 1 :]), []).append(mean)
        squares = [(mean - sum(group) / len(group)) ** 2 for group in groups.values() for mean in group]
        variation.append(sum(squares) / max(1, len(squares)))
    return variation


def interval_numbers(cell: Numbers | None) -> list[float] | None:
    """Return the mean, half the width of its interval (0 if there is none), the count, the least and the most."""
    if cell is None:
        return None
    half = 0.0 if math.isnan(cell.half_width) else cell.half_width
    return [cell.mean, half, cell.count, cell.least, cell.most]
