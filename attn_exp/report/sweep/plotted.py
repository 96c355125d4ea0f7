"""The data of a sweep's plots and page, and the kinds of plots."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from attn_exp.arrays import Arrays, Shape
from attn_exp.config.schema import PRESETS, Size
from attn_exp.errors import UserError, unknown
from attn_exp.experiment.row import is_deep, titled

FEW = 5
"""Fewer seeds have no useful confidence interval."""

ALL = "all"
"""The label of a value that means no limit, such as the -1 of a window: it sorts after all numbers."""

CAPTIONS = {
    "effects": (
        "The effect of each setting, compared seed by seed: mean difference and 95% interval, sorted by explained "
        "variance."
    ),
    "against": "Each variant against the swept key: mean, and its 95% interval over seeds as a bar.",
    "choices": "Each variant at each choice: mean, and its 95% interval over seeds.",
    "heat": "Means over two swept keys, one panel for each variant.",
    "parallel": "Parallel coordinates: combinations of all swept keys, coloured by their mean.",
    "heads": "Every head of every layer, a map for each pattern: what share of its weight a head gives to it.",
    "spread": (
        "How the numbers of each variant spread over the seeds: quartiles are estimated as "
        "the mean ± 0.674 standard deviations."
    ),
}
"""The caption of each kind of plot."""

NEEDS = {
    "effects": (1, 99, "a setting that varies"),
    "against": (1, 3, "one to three settings that vary, one of them of numbers"),
    "choices": (1, 1, "one setting that varies"),
    "heat": (2, 2, "two settings that vary"),
    "parallel": (2, 99, "two settings that vary, or more"),
    "spread": (0, 99, "results"),
}
"""The minimum and maximum number of settings that vary besides the seed, and the same in words."""


def refuse_plots(names: Sequence[str], axes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse plots that do not exist, or that cannot be drawn of these axes.

    Raises:
        UserError: the plot, and what it needs.
    """
    varying = [axis for axis in axes if axis["key"] != "seed" and axis["count"] > 1]
    numeric = [axis for axis in varying if axis["kind"] in ("int", "float")]
    for name in names:
        if name not in NEEDS:
            raise UserError(unknown(name, list(NEEDS), "plot in sweep.plot"))
        least, most, need = NEEDS[name]
        if not least <= len(varying) <= most or (name == "against" and not numeric):
            keys = ", ".join(axis["key"] for axis in varying) or "none"
            raise UserError(f"sweep.plot={name} needs {need}; here vary: {keys}")


def refuse_unknown(names: Sequence[str]) -> None:
    """Refuse names of figures that no sweep has.

    Raises:
        UserError: the first of them.
    """
    for name in names:
        if name not in CAPTIONS:
            raise UserError(unknown(name, list(CAPTIONS), "plot of a sweep in figures.only"))


class Numbers(Protocol):
    """Summary statistics of a cell of a sweep, such as those over its seeds.

    `squares` is the sum of squared deviations from the mean, and `half_width` half of the mean's 95% confidence
    interval, NaN for a single number.
    """

    @property
    def count(self) -> int: ...
    @property
    def mean(self) -> float: ...
    @property
    def squares(self) -> float: ...
    @property
    def least(self) -> float: ...
    @property
    def most(self) -> float: ...
    @property
    def half_width(self) -> float: ...


class Change(NamedTuple):
    """The effect of one change of a setting on a metric: the mean paired difference, and whether it is significant.

    `low` and `high` are the ends of the interval, NaN if there is none.
    """

    label: str
    mean: float
    low: float
    high: float
    sure: bool


class Plotted(NamedTuple):
    """The data of a sweep's plots.

    `cells` maps the labels of each of the `axes`, and the variant, to the numbers of each metric. `metrics` are those
    worth drawing, the most important first, and `changes` the largest changes of each of the first two. `heads` are the
    patterns of heads, `[layer head]` each, of the `layers`; `further` are plots that were requested. `size` is that of
    the figures; if `only` is not empty, no other plots are drawn.
    """

    axes: Sequence[str]
    variants: Sequence[str]
    cells: Mapping[tuple[str, ...], Mapping[str, Numbers]]
    metrics: Sequence[str]
    changes: Mapping[str, Sequence[Change]]
    layers: Sequence[str]
    heads: Arrays
    further: Sequence[str] = ()
    size: Size = PRESETS["paper"]
    only: Sequence[str] = ()

    @property
    def varying(self) -> list[int]:
        return [place for place in range(len(self.axes)) if len({key[place] for key in self.cells}) > 1]


def labels(plotted: Plotted, place: int) -> list[str]:
    """Return the labels of an axis in the order of appearance, with no limit after the numbers."""
    names = list(dict.fromkeys(key[place] for key in plotted.cells))
    return in_order(names) if ALL in names else names


def is_number(label: str) -> bool:
    return not math.isnan(number(label))


def number(label: str) -> float:
    """Return a label as a number: the middle of a range `1..3`, NaN for a word."""
    low, _, high = label.partition("..")
    try:
        return (float(low) + float(high or low)) / 2
    except ValueError:
        return math.nan


def in_order(names: Sequence[str]) -> list[str]:
    """Sort labels by number, with no limit last; words keep their order."""
    numbered = all(is_number(name) or name == ALL for name in names)
    return sorted(names, key=lambda name: math.inf if name == ALL else number(name)) if numbered else list(names)


MOST_CELLS = 3000
"""A larger page would be slow; its pictures and its table show the same."""
NONE = -1


def explored(plotted: Plotted, metrics: Iterable[str], first: str) -> dict[str, Any] | None:
    """Return the cells of a sweep, ready for JSON, with all metrics worth drawing and these; `first` comes first.

    None if there are too many cells, or nothing varies.
    """
    places = plotted.varying
    if not places or len(plotted.cells) > MOST_CELLS:
        return None
    names = list(dict.fromkeys((*plotted.metrics, *metrics)))
    names.sort(key=lambda name: name != first)
    axes = [axis_data(plotted, place) for place in (*places, len(plotted.axes))]
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
    return {"axes": axes, "metrics": titles, "deep": deep, "cells": cells, "start": initial_view(axes, cells)}


def axis_data(plotted: Plotted, place: int) -> dict[str, Any]:
    named = place < len(plotted.axes)
    names = labels(plotted, place) if named else list(dict.fromkeys(key[-1] for key in plotted.cells))
    values = parse_numbers(names) if named else None
    if values is not None:
        names = [label for _, label in sorted(zip(values, names, strict=True))]
        values = sorted(values)
    name = plotted.axes[place] if named else "variant"
    return {"name": name, "labels": names, "values": values, "log": values is not None and spaced_by_factors(values)}


def parse_numbers(labels: Sequence[str]) -> list[float] | None:
    try:
        values = [float(label) for label in labels]
    except ValueError:
        return None
    return values if all(map(math.isfinite, values)) else None


def spaced_by_factors(values: Sequence[float]) -> bool:
    """Return whether sorted numbers grow by factors rather than by steps, so that a logarithmic axis suits them."""
    if len(values) < 3 or values[0] <= 0:
        return False
    steps = [after - before for before, after in itertools.pairwise(values)]
    return max(steps) >= 3 * min(steps) and steps[-1] >= 1.5 * steps[0]


def initial_view(axes: Sequence[dict[str, Any]], cells: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return what is drawn at first of the first metric, as indices of axes.

    A numeric setting is along x. Of the rest, the setting that explains most is shown by colour, so that scaled and
    unscaled share axes, and the next one by panel.
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
    """Return how much the means of the first metric vary along each axis, alone and in interactions.

    That is the mean square deviation of each cell from the mean of the cells that differ from it along that axis alone.
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
