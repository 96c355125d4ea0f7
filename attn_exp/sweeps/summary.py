"""Summary statistics of a sweep, with a cell per combination of settings and variant."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array
from attn_exp.report.escapes import brief
from attn_exp.report.sweep_plots import FEW, Numbers
from attn_exp.sweeps.effects import NOISE, t_quantile
from attn_exp.sweeps.effects_table import Answers, answer, round_number, with_interval
from attn_exp.sweeps.rows import METRICS, Axes, Column, Failed, Rows, combine, make_cube, read_rows

LAYER = "model.layer"
HEAD_COLUMN = re.compile(r"head_(\d+)_([a-z]+)")
MOST_CELLS = 20_000

Key = tuple[str, ...]
Extreme = tuple[float, int, str]
"""A number, its point and its variant."""


def head_column(head: int, pattern: str) -> str:
    return f"head_{head}_{pattern}"


def head_and_pattern(name: str) -> tuple[int, str] | None:
    match = HEAD_COLUMN.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


@dataclass(frozen=True)
class Failure:
    """The points that failed with one error: their number, the first of them, and the settings they all share."""

    count: int
    first: int
    shared: Mapping[str, str]


@dataclass(frozen=True)
class Summary:
    """The data for a sweep's report.

    `cells` maps the labels of each axis but the seed, and the variant, to the moments of each metric; `least` and
    `most` hold the extreme row of each metric; `first` holds the first point of each cell; `failures` the points of
    each error. `tally` says how many published figures agree, as in 6 of 6; `disagreements` holds the points with a
    disagreeing figure.
    """

    axes: tuple[str, ...]
    seeds: int
    points: int
    failed: int
    variants: tuple[str, ...]
    cells: Mapping[Key, Mapping[str, Numbers]]
    first: Mapping[Key, int]
    least: Mapping[str, Extreme]
    most: Mapping[str, Extreme]
    failures: Mapping[str, Failure]
    tally: str
    disagreements: Mapping[int, str]
    answers: Answers

    @property
    def more(self) -> list[str]:
        return [name for name in self.most if name not in METRICS and not head_and_pattern(name)]


def summarized(
    head: Sequence[str],
    lines: Iterable[Sequence[str]],
    axes: Axes,
    metrics: Sequence[str] = (),
    dimensions: Sequence[Sequence[int]] | None = None,
    matters: Mapping[str, float] | None = None,
    exact: bool = False,
) -> Summary:
    """Summarise the lines of a sweep's table; `metrics` are those that are not built in.

    `dimensions` groups the indices of zipped axes; without it each axis is separate. `matters` holds the smallest
    difference of each metric that matters, `exact` means that no seed changes any number.
    """
    rows = read_rows(head, lines, axes, metrics)
    together = dimensions if dimensions is not None else [[place] for place in range(len(axes))]
    cube = make_cube(rows, axes, together, [name for name in metrics if not head_and_pattern(name)])
    shown = shown_axes(rows, axes)
    variants = rows.texts["variant"]
    cells = combine([*shown.values(), variants])
    measured = {name: measure_cells(cells, numbers) for name, numbers in rows.numbers.items()}
    firsts = rows.points[np.unique(cells.codes, return_index=True)[1]].tolist()
    finite = {name: np.isfinite(numbers) for name, numbers in rows.numbers.items()}

    def find_extreme(name: str, sign: int) -> Extreme:
        place = int(np.argmin(np.where(finite[name], sign * rows.numbers[name], np.inf)))
        return float(rows.numbers[name][place]), int(rows.points[place]), variants.labels[variants.codes[place]]

    tallies = count_agreement(rows)
    each_once = np.diff(rows.points, prepend=-1) != 0
    apart = np.flatnonzero(each_once & (tallies[:, 0] < tallies[:, 1]))
    return Summary(
        axes=tuple(shown),
        seeds=math.prod(int(axis["count"]) for axis in axes if axis["key"] == "seed"),
        points=int(each_once.sum()) + len(rows.failed),
        failed=len(rows.failed),
        variants=variants.labels,
        cells={
            key: {name: moments[place] for name, moments in measured.items() if moments[place].count}
            for place, key in enumerate(cells.labels)
        },
        first=dict(zip(cells.labels, firsts, strict=True)),
        least={name: find_extreme(name, 1) for name in finite if finite[name].any()},
        most={name: find_extreme(name, -1) for name in finite if finite[name].any()},
        failures=group_failures(rows.failed),
        tally=format_tally(tallies[each_once].sum(axis=0)),
        disagreements={int(rows.points[place]): format_tally(tallies[place]) for place in apart},
        answers=answer(cube, matters or {}, exact),
    )


def shown_axes(rows: Rows, axes: Axes) -> dict[str, Column]:
    """Return the column of each axis but the seed; the longest are left out until at most `MOST_CELLS` cells remain."""
    shown = sorted((axis for axis in axes if axis["key"] != "seed"), key=lambda axis: int(axis["count"]))
    while math.prod(int(axis["count"]) for axis in shown) > MOST_CELLS:
        shown.pop()
    return {axis["column"]: rows.texts[axis["column"]] for axis in axes if axis in shown}


def half_width(count: int, squares: float) -> float:
    """Return half of the 95 % confidence interval of a mean, `t s / sqrt(n)`; NaN for a single number."""
    return t_quantile(count - 1) * math.sqrt(squares / (count - 1) / count) if count > 1 else math.nan


def measure_cells(cells: Column, numbers: Array) -> list[Numbers]:
    count, there = len(cells.labels), np.isfinite(numbers)
    codes, numbers = cells.codes[there], numbers[there]
    counts = np.bincount(codes, minlength=count)
    means = np.bincount(codes, numbers, count) / np.maximum(counts, 1)
    squares = np.bincount(codes, (numbers - means[codes]) ** 2, count)
    least, most = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(least, codes, numbers)
    np.maximum.at(most, codes, numbers)
    halves = np.array(list(map(half_width, counts.tolist(), squares.tolist())))
    columns = (column.tolist() for column in (counts, means, squares, least, most, halves))
    return [Numbers(*each) for each in zip(*columns, strict=True)]


def count_agreement(rows: Rows) -> Array:
    """Return how many published figures of each row's point agree, and their total, `[rows, 2]`."""
    agree = rows.texts.get("agree", Column(("",), np.zeros_like(rows.points)))
    pairs = [[int(number) for number in text.split(" of ")] if text else [0, 0] for text in agree.labels]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)[agree.codes]


def format_tally(pair: Array) -> str:
    return f"{int(pair[0]):,} of {int(pair[1]):,}" if pair[1] else ""


def group_failures(failed: Sequence[Failed]) -> dict[str, Failure]:
    found: dict[str, Failure] = {}
    for point, message, settings in failed:
        last = found.get(message, Failure(0, point, settings))
        shared = {name: value for name, value in last.shared.items() if settings[name] == value}
        found[message] = Failure(last.count + 1, last.first, shared)
    return found


def mean_and_interval(moments: Numbers | None) -> str:
    """Format a mean with the digits that its uncertainty allows, and half of its 95 % interval.

    A mean of few numbers is followed by their range instead; one that varies only by rounding stands alone.
    """
    if moments is None:
        return ""
    if moments.most - moments.least <= NOISE * abs(moments.mean):
        return brief(moments.mean).rstrip("0").rstrip(".") if 1e-3 <= abs(moments.mean) < 1e5 else brief(moments.mean)
    if moments.count < FEW:
        mean, least, most = (round_number(number, 3) for number in (moments.mean, moments.least, moments.most))
        return f"{mean} ({least}..{most})"
    return with_interval(moments.mean, moments.mean - moments.half_width, moments.mean + moments.half_width)
