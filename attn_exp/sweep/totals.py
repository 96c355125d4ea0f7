"""A sweep's results in few numbers: streamed from its parts, a cell per combination of settings and variant."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attn_exp.experiment.row import COLUMNS
from attn_exp.sweep.task import OK, TALLY

METRICS = tuple(name for name, column in COLUMNS.items() if column.summed)
MOST_CELLS = 20_000
KEPT = 5
"""How many of the best, the worst and the failed points are named."""
NAMED = 20
"""How many of the points that disagree with a printed result are named."""

T_975 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
"""97.5 % points of Student's t for 1 to 30 degrees of freedom; Abramowitz & Stegun 1964, table 26.10."""
Z_975 = 1.959963985


@dataclass
class Moments:
    """Count, mean, sum of squared deviations and range of numbers, one pass (Welford 1962)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    def add(self, number: float) -> None:
        """Take one more number."""
        self.count += 1
        step = number - self.mean
        self.mean += step / self.count
        self.squares += step * (number - self.mean)
        self.least, self.most = min(self.least, number), max(self.most, number)

    @property
    def half_width(self) -> float:
        """Half of the 95 % confidence interval of the mean, `t s / sqrt(n)`; NaN for a single number."""
        if self.count < 2:
            return math.nan
        return t_975(self.count - 1) * math.sqrt(self.squares / (self.count - 1) / self.count)


@dataclass
class Tally:
    """How many printed results agree with the computed ones, and of how many."""

    agree: int = 0
    printed: int = 0

    def add(self, other: Tally) -> None:
        """Count those of another tally too."""
        self.agree += other.agree
        self.printed += other.printed

    def __str__(self) -> str:
        return f"{self.agree:,} of {self.printed:,}"


def t_975(freedom: int) -> float:
    """Return the 97.5 % point of Student's t; beyond the table, Abramowitz & Stegun 1964, formula 26.7.5."""
    if freedom <= len(T_975):
        return T_975[freedom - 1]
    z, n = Z_975, freedom
    steps = (
        (z**3 + z) / (4 * n),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3),
    )
    return z + sum(steps)


@dataclass(frozen=True)
class Fold:
    """How an axis becomes a label of a cell: its own value, or one of `bins` equal stretches from `low` to `high`."""

    column: int
    bins: int = 0
    low: float = 0.0
    high: float = 0.0

    def label(self, text: str) -> str:
        """Return the label of a value."""
        if not self.bins:
            return text
        width = (self.high - self.low) / self.bins
        place = min(self.bins - 1, int((float(text) - self.low) / width))
        return f"{self.low + place * width:g}..{self.low + (place + 1) * width:g}"


@dataclass
class Summary:
    """What a report says of a sweep.

    `cells` maps the labels of each axis but the seed, and the variant, to the moments of each metric; `least` and
    `most` hold the extreme rows of each metric as (number, point, variant); `first` holds the first point of each cell;
    `failures` some of the points of each error. `tally` counts printed results, each point's once, and `tallies` those
    of each cell; `disagreements` holds the first points of which one disagrees, `disagreeing` how many there are.
    """

    axes: tuple[str, ...]
    seeds: int = 1
    points: int = 0
    failed: int = 0
    variants: list[str] = field(default_factory=list)
    cells: dict[tuple[str, ...], dict[str, Moments]] = field(default_factory=dict)
    first: dict[tuple[str, ...], int] = field(default_factory=dict)
    least: dict[str, list[tuple[float, int, str]]] = field(default_factory=dict)
    most: dict[str, list[tuple[float, int, str]]] = field(default_factory=dict)
    failures: dict[str, list[int]] = field(default_factory=dict)
    failure_counts: Counter[str] = field(default_factory=Counter)
    tally: Tally = field(default_factory=Tally)
    tallies: dict[tuple[str, ...], Tally] = field(default_factory=dict)
    disagreeing: int = 0
    disagreements: dict[int, Tally] = field(default_factory=dict)

    @property
    def more(self) -> list[str]:
        """The metrics beyond a row's own that have numbers."""
        return [name for name in self.most if name not in METRICS]


def folds(head: Sequence[str], axes: Sequence[Mapping[str, Any]]) -> dict[str, Fold]:
    """Return the fold of each axis but the seed, so that there are at most `MOST_CELLS` cells for a variant.

    An axis is described by its column, how many values it has, and the least and most where all are numbers. The
    longest axes are cut into stretches; one of too many words is left out.
    """
    shown = [axis for axis in axes if axis["key"] != "seed"]
    counts = {axis["column"]: int(axis["count"]) for axis in shown}
    while math.prod(counts.values()) > MOST_CELLS:
        longest = max(counts, key=lambda name: counts[name])
        counts[longest] = max(1, counts[longest] // 2)
    folded = {}
    for axis in shown:
        name, bins = axis["column"], counts[axis["column"]]
        if bins == axis["count"]:
            folded[name] = Fold(head.index(name))
        elif axis.get("low") is not None:
            folded[name] = Fold(head.index(name), bins, axis["low"], axis["high"])
    return folded


def summarized(
    head: Sequence[str],
    lines: Iterable[Sequence[str]],
    axes: Sequence[Mapping[str, Any]],
    metrics: Sequence[str] = (),
) -> Summary:
    """Return the summary of result lines, read once and not kept; `metrics` are those beyond a row's own."""
    folded = folds(head, axes)
    seeds = [int(axis["count"]) for axis in axes if axis["key"] == "seed"]
    summary = Summary(tuple(folded), math.prod(seeds))
    columns = [(name, head.index(name)) for name in (*METRICS, *metrics) if name in head]
    status, message, variant = (head.index(name) for name in ("status", "message", "variant"))
    tally = [head.index(name) for name in TALLY if name in head]
    last = ""
    for line in lines:
        new = line[0] != last
        if new:
            last = line[0]
            summary.points += 1
        if line[status] != OK:
            count_failure(summary, int(line[0]), f"{line[status]}: {line[message]}")
            continue
        if line[variant] not in summary.variants:
            summary.variants.append(line[variant])
        key = (*(fold.label(line[fold.column]) for fold in folded.values()), line[variant])
        cell = summary.cells.get(key)
        if cell is None:
            cell = summary.cells[key] = {}
            summary.first[key] = int(last)
        if tally and line[tally[1]] != "0":
            note_agreement(summary, key, Tally(*(int(line[column]) for column in tally)), int(last), new)
        for name, column in columns:
            number = float(line[column] or "nan")
            if math.isfinite(number):
                moments = cell.get(name) or cell.setdefault(name, Moments())
                moments.add(number)
                note_extremes(summary, name, number, last, line[variant])
    return summary


def note_agreement(summary: Summary, key: tuple[str, ...], tally: Tally, point: int, new: bool) -> None:
    """Count the printed results of a line: with its cell, and once for a new point, which is kept if one disagrees."""
    summary.tallies.setdefault(key, Tally()).add(tally)
    if not new:
        return
    summary.tally.add(tally)
    if tally.agree < tally.printed:
        summary.disagreeing += 1
        if len(summary.disagreements) < NAMED:
            summary.disagreements[point] = tally


def note_extremes(summary: Summary, name: str, number: float, point: str, variant: str) -> None:
    """Keep a row if it is among the `KEPT` largest or smallest of a metric; of equals, the first."""
    most, least = summary.most.setdefault(name, []), summary.least.setdefault(name, [])
    if len(most) < KEPT or number > most[-1][0]:
        most.append((number, int(point), variant))
        most.sort(key=lambda extreme: -extreme[0])
        del most[KEPT:]
    if len(least) < KEPT or number < least[-1][0]:
        least.append((number, int(point), variant))
        least.sort(key=lambda extreme: extreme[0])
        del least[KEPT:]


def count_failure(summary: Summary, point: int, message: str) -> None:
    summary.failed += 1
    summary.failure_counts[message] += 1
    places = summary.failures.setdefault(message, []) if len(summary.failures) < 100 else []
    if len(places) < KEPT:
        places.append(point)
