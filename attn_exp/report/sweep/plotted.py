"""The plots that a sweep can have: what each shows, what it needs, and the plain data that all are drawn from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from attn_exp.arrays import Array
from attn_exp.config.schema import PRESETS, Size
from attn_exp.errors import UserError, unknown

FEW = 5
"""Fewer seeds than these have no interval worth its name."""

ALL = "all"
"""The label of a value that stands for no limit, such as the -1 of a window: it comes after all numbers."""

CAPTIONS = {
    "effects": (
        "What each setting does, compared seed by seed: the mean difference and its 95% interval; that which explains "
        "most is first."
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
"""What each kind of plot shows."""

NEEDS = {
    "effects": (1, 99, "a setting that varies"),
    "against": (1, 3, "one to three settings that vary, one of them of numbers"),
    "choices": (1, 1, "one setting that varies"),
    "heat": (2, 2, "two settings that vary"),
    "parallel": (2, 99, "two settings that vary, or more"),
    "spread": (0, 99, "results"),
}
"""How many settings may vary beside the seed, and the same in words."""


def refuse_plots(names: Sequence[str], axes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a plot that there is not, or that cannot be drawn of these axes.

    Raises:
        UserError: which, and what it needs.
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
    """The numbers of a cell of a sweep, such as those over its seeds, in few numbers.

    `squares` is the sum of the squared deviations from the mean, and `half_width` half of the mean's 95% confidence
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
    """What one change of a setting does to a metric: the mean of its paired differences, and how sure that is.

    `low` and `high` are the ends of the interval, NaN where there is none.
    """

    label: str
    mean: float
    low: float
    high: float
    sure: bool


class Plotted(NamedTuple):
    """What the plots of a sweep are drawn from.

    `cells` maps the labels of each of the `axes`, and the variant, to the numbers of each metric. `metrics` are those
    worth drawing, the most important first, and `changes` the largest changes of each of the first two. `heads` are
    the patterns of heads, `[layer head]` each, of the `layers`; `further` are the plots that somebody asked for.
    `size` is how large they are shown, and of plots that `only` names no others are drawn.
    """

    axes: Sequence[str]
    variants: Sequence[str]
    cells: Mapping[tuple[str, ...], Mapping[str, Numbers]]
    metrics: Sequence[str]
    changes: Mapping[str, Sequence[Change]]
    layers: Sequence[str]
    heads: Mapping[str, Array]
    further: Sequence[str] = ()
    size: Size = PRESETS["paper"]
    only: Sequence[str] = ()

    @property
    def varying(self) -> list[int]:
        """The places of the axes that differ between the cells."""
        return [place for place in range(len(self.axes)) if len({key[place] for key in self.cells}) > 1]


def labels(plotted: Plotted, place: int) -> list[str]:
    """Return the labels of an axis, in the order in which they first came; no limit after the numbers."""
    names = list(dict.fromkeys(key[place] for key in plotted.cells))
    return in_order(names) if ALL in names else names


def is_number(label: str) -> bool:
    """Say whether a label is a number."""
    return not math.isnan(number(label))


def number(label: str) -> float:
    """Return a label as a number; the middle of a stretch `1..3`; NaN for a word."""
    low, _, high = label.partition("..")
    try:
        return (float(low) + float(high or low)) / 2
    except ValueError:
        return math.nan


def in_order(names: Sequence[str]) -> list[str]:
    """Return labels in the order of their numbers, with no limit after them, or words in their own."""
    numbered = all(is_number(name) or name == ALL for name in names)
    return sorted(names, key=lambda name: math.inf if name == ALL else number(name)) if numbered else list(names)
