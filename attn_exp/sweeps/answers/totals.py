"""Summary statistics of a sweep, streamed from its parts, with a cell per combination of settings and variant.

Rows of the sweep's table that a setting cannot change are merged into one, in which that setting is `any`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from attn_exp.report.numbers import brief
from attn_exp.report.sweep.plotted import FEW
from attn_exp.sweeps.answers.answers import NONE, Answers, answer
from attn_exp.sweeps.answers.cube import METRICS, OK, Gatherer, endless_text, label_of
from attn_exp.sweeps.answers.digits import NOISE, from_to, with_interval
from attn_exp.sweeps.answers.student import t_quantile

TALLY = ("agreeing", "printed")
"""Extra columns of parts: the number of published figures that agree, and their total."""
LAYER = "model.layer"
HEAD_COLUMN = re.compile(r"head_(\d+)_([a-z]+)")
ANY = "any"
MOST_CELLS = 20_000
KEPT = 5
"""How many of the best, the worst and the failed points are listed."""
MOST_ERRORS = 100
NAMED = 20
"""How many points that disagree with a published figure are listed."""


def head_column(head: int, pattern: str) -> str:
    """Return the column name for a pattern of a head; heads count from 1."""
    return f"head_{head}_{pattern}"


def head_and_pattern(name: str) -> tuple[int, str] | None:
    """Return the head and pattern of such a column, or None for another column."""
    match = HEAD_COLUMN.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


@dataclass
class Moments:
    """Count, mean, sum of squared deviations and range of numbers, in one pass (Welford 1962)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    def add(self, number: float) -> None:
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
        return t_quantile(self.count - 1) * math.sqrt(self.squares / (self.count - 1) / self.count)


@dataclass(frozen=True)
class Fold:
    """How an axis value becomes a cell label: unchanged, or as one of `bins` equal intervals from `low` to `high`.

    `endless` is the value that means no limit, if there is one.
    """

    column: int
    bins: int = 0
    low: float = 0.0
    high: float = 0.0
    endless: str | None = None

    def label(self, text: str) -> str:
        if not self.bins or text == self.endless:
            return label_of(text, self.endless)
        width = (self.high - self.low) / self.bins
        place = min(self.bins - 1, int((float(text) - self.low) / width))
        return f"{self.low + place * width:g}..{self.low + (place + 1) * width:g}"


@dataclass
class Failure:
    """The points that failed with one error: their number, the first of them, and the settings they all share."""

    count: int
    first: int
    shared: dict[str, str]

    def add(self, settings: Mapping[str, str]) -> None:
        """Count one more point."""
        self.count += 1
        self.shared = {name: value for name, value in self.shared.items() if settings[name] == value}


@dataclass
class Tally:
    """The number of published figures that agree with the computed ones, and their total."""

    agree: int = 0
    printed: int = 0

    def add(self, other: Tally) -> None:
        """Add another tally."""
        self.agree += other.agree
        self.printed += other.printed

    def __str__(self) -> str:
        return f"{self.agree:,} of {self.printed:,}"


@dataclass
class Summary:
    """The data for a sweep's report.

    `cells` maps the labels of each axis but the seed, and the variant, to the moments of each metric; `least` and
    `most` hold the extreme rows of each metric as (number, point, variant); `first` holds the first point of each cell;
    `failures` the points of each error. `tally` counts published figures, each point's once, and `tallies` those of
    each cell; `disagreements` holds the first points with a disagreeing figure, `disagreeing` their total number.
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
    failures: dict[str, Failure] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    tallies: dict[tuple[str, ...], Tally] = field(default_factory=dict)
    disagreeing: int = 0
    disagreements: dict[int, Tally] = field(default_factory=dict)
    answers: Answers = NONE

    @property
    def more(self) -> list[str]:
        """The metrics with numbers that are not built in."""
        return [name for name in self.most if name not in METRICS and not head_and_pattern(name)]


def folds(head: Sequence[str], axes: Sequence[Mapping[str, Any]]) -> dict[str, Fold]:
    """Return the fold of each axis but the seed, so that there are at most `MOST_CELLS` cells for a variant.

    An axis is described by its column, its number of values, and their range if all are numbers. The longest axes are
    binned; a non-numeric axis that would have to be binned is left out.
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
            folded[name] = Fold(head.index(name), endless=endless_text(axis))
        elif axis.get("low") is not None:
            folded[name] = Fold(head.index(name), bins, axis["low"], axis["high"], endless_text(axis))
    return folded


def summarized(
    head: Sequence[str],
    lines: Iterable[Sequence[str]],
    axes: Sequence[Mapping[str, Any]],
    metrics: Sequence[str] = (),
    dimensions: Sequence[Sequence[int]] | None = None,
    matters: Mapping[str, float] | None = None,
    exact: bool = False,
) -> Summary:
    """Summarise result lines in one pass without keeping them; `metrics` are those that are not built in.

    `dimensions` groups the indices of zipped axes; without it each axis is separate. `matters` holds the smallest
    difference of each metric that matters, `exact` means that no seed changes any number.
    """
    together = dimensions if dimensions is not None else [[place] for place in range(len(axes))]
    gatherer = Gatherer(head, axes, together, [name for name in metrics if not head_and_pattern(name)])
    summary = totalled(head, gatherer.watching(lines), axes, metrics)
    summary.answers = answer(gatherer.cube(), matters or {}, exact)
    return summary


def totalled(
    head: Sequence[str], lines: Iterable[Sequence[str]], axes: Sequence[Mapping[str, Any]], metrics: Sequence[str]
) -> Summary:
    """Summarise result lines, without the analysis of effects."""
    folded = folds(head, axes)
    seeds = [int(axis["count"]) for axis in axes if axis["key"] == "seed"]
    summary = Summary(tuple(folded), math.prod(seeds))
    columns = [(name, head.index(name)) for name in (*METRICS, *metrics) if name in head]
    swept = [(axis["column"], head.index(axis["column"])) for axis in axes]
    status, message, variant = (head.index(name) for name in ("status", "message", "variant"))
    tally_of = tally_reader(head)
    last = ""
    for line in lines:
        new = line[0] != last
        if new:
            last = line[0]
            summary.points += 1
        if line[status] != OK:
            settings = {name: line[column] for name, column in swept}
            count_failure(summary, int(line[0]), f"{line[status]}: {line[message]}", settings)
            continue
        if line[variant] not in summary.variants:
            summary.variants.append(line[variant])
        key = (*(fold.label(line[fold.column]) for fold in folded.values()), line[variant])
        cell = summary.cells.get(key)
        if cell is None:
            cell = summary.cells[key] = {}
            summary.first[key] = int(last)
        if (tally := tally_of(line)).printed:
            note_agreement(summary, key, tally, int(last), new)
        for name, column in columns:
            number = float(line[column] or "nan")
            if math.isfinite(number):
                moments = cell.get(name) or cell.setdefault(name, Moments())
                moments.add(number)
                note_extremes(summary, name, number, last, line[variant])
    return summary


def tally_reader(head: Sequence[str]) -> Callable[[Sequence[str]], Tally]:
    """Return a function that reads the tally of a line, from columns that only parts have."""
    if not set(TALLY) <= set(head):
        return lambda line: Tally()
    agreeing, printed = (head.index(name) for name in TALLY)
    return lambda line: Tally(int(line[agreeing]), int(line[printed]))


def note_agreement(summary: Summary, key: tuple[str, ...], tally: Tally, point: int, new: bool) -> None:
    """Add a line's tally to its cell and, for a new point, to the total; list the point if a figure disagrees."""
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


def count_failure(summary: Summary, point: int, message: str, settings: Mapping[str, str]) -> None:
    """Count a failed point with its error; beyond `MOST_ERRORS` different errors, only the earlier ones."""
    summary.failed += 1
    if message in summary.failures:
        summary.failures[message].add(settings)
    elif len(summary.failures) < MOST_ERRORS:
        summary.failures[message] = Failure(1, point, dict(settings))


@dataclass(frozen=True)
class MergedRow:
    """A row of the sweep's table: its labels, its combination, its points, and how many figures agree."""

    labels: tuple[str, ...]
    key: tuple[str, ...]
    count: int
    tally: Tally | None
    cell: Mapping[str, Moments]


def merge_rows(summary: Summary, metrics: Sequence[str]) -> list[MergedRow]:
    """Return the rows of the sweep's table, in the order of the points.

    Rows of a variant are merged over a setting that is inert in it, if every value of the setting has its row and the
    table shows the same for all of them.
    """
    rows = [
        MergedRow(
            key, key, max((moments.count for moments in cell.values()), default=0), summary.tallies.get(key), cell
        )
        for key, cell in summary.cells.items()
    ]
    for place, axis in enumerate(summary.axes):
        still = summary.answers.inert.get(axis, ())
        levels = len({row.labels[place] for row in rows})
        groups: dict[tuple[str, ...], list[MergedRow]] = {}
        for row in rows:
            alone = row.labels[-1] not in still or levels < 2
            shared = row.labels if alone else (*row.labels[:place], ANY, *row.labels[place + 1 :])
            groups.setdefault(shared, []).append(row)
        rows = [row for labels, group in groups.items() for row in as_one_row(labels, group, levels, metrics)]
    order = {key: place for place, key in enumerate(summary.cells)}
    return sorted(rows, key=lambda row: order[row.key])


def as_one_row(labels: tuple[str, ...], group: list[MergedRow], levels: int, metrics: Sequence[str]) -> list[MergedRow]:
    """Merge a group into one row, unless its rows differ or one is missing."""
    shown = {numbers_shown(row, metrics) for row in group}
    if len(group) < max(2, levels) or len(shown) > 1:
        return group
    return [replace(group[0], labels=labels, count=sum(row.count for row in group))]


def numbers_shown(row: MergedRow, metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the cells that the table shows of a row."""
    return (str(row.tally or ""), *(mean_and_interval(row.cell.get(name)) for name in metrics))


def mean_and_interval(moments: Moments | None) -> str:
    """Format a mean with the digits that its uncertainty allows, and half of its 95 % interval.

    A mean of few numbers is followed by their range instead; one that varies only by rounding stands alone.
    """
    if moments is None:
        return ""
    if moments.most - moments.least <= NOISE * abs(moments.mean):
        return brief(moments.mean).rstrip("0").rstrip(".") if 1e-3 <= abs(moments.mean) < 1e5 else brief(moments.mean)
    if moments.count < FEW:
        return from_to(moments.mean, moments.least, moments.most)
    return with_interval(moments.mean, moments.mean - moments.half_width, moments.mean + moments.half_width)
