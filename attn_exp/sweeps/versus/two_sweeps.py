"""Compare two sweeps: the points in both, and which of their numbers differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.report import words
from attn_exp.report.numbers import brief
from attn_exp.report.papers import Table, deep_places
from attn_exp.report.versus import Versus
from attn_exp.sweeps.answers.cube import METRICS, OK
from attn_exp.sweeps.overview import depth_of
from attn_exp.sweeps.versus.versus import (
    count_things,
    format_origins,
    format_settings,
    settings_apart,
    settings_table,
)

ROUNDING = ("error", "error_ulp", "row_sum_error")
"""Metrics of rounding error; a change in them is no fault."""
NEAR = 256 * np.finfo(np.float64).eps
"""Relative and absolute tolerance within which numbers are the same to rounding."""
HEAD = (
    words.METRIC, words.ROWS, "same bits", "moved", words.LARGEST, "at", words.FIRST_ONE, words.SECOND_ONE,
    "mean difference",
)  # fmt: skip

Row = Mapping[str, str]


@dataclass
class Side:
    """One sweep: its description, and the lines of its table without the header."""

    name: str
    about: Mapping[str, Any]
    head: Sequence[str]
    lines: Iterable[Sequence[str]]

    @property
    def swept(self) -> list[str]:
        return [axis["column"] for axis in self.about["axes"]]

    @property
    def settings(self) -> dict[str, str]:
        """The settings of all points, and the swept ones, by name."""
        fixed = dict(word.lstrip("+").partition("=")[::2] for word in self.about["fixed"])
        return fixed | {axis["key"]: f"swept, {axis['count']:,} values" for axis in self.about["axes"]}

    def rows(self, names: Sequence[str]) -> dict[str, Row]:
        """Return the rows that did not fail, keyed by some columns; of several with the same key, the first."""
        found: dict[str, Row] = {}
        for line in self.lines:
            row = dict(zip(self.head, line, strict=True))
            if row["status"] == OK:
                found.setdefault(" ".join(f"{name}={row[name]}" for name in names), row)
        return found


@dataclass(frozen=True)
class Move:
    """How one metric differs: rows compared, bit-identical rows, rows that differ beyond rounding, and its line of the
    table."""

    metric: str
    rows: int
    identical: int
    moved: int
    line: tuple[str, ...]


def versus(one: Side, other: Side) -> Versus:
    """Compare two sweeps, matching rows by the settings that both sweep, the seed and the variant."""
    shared = [name for name in one.swept if name in other.swept]
    first, second = (side.rows([*shared, "variant"]) for side in (one, other))
    both = {key: (row, second[key]) for key, row in first.items() if key in second}
    names = [name for name in (*METRICS, *one.about["metrics"]) if name in one.head and name in other.head]
    moves = [move for name in names if (move := measure_move(name, both)) is not None]
    settings = settings_table(settings_apart(one.settings, other.settings))
    alone = {"first": len(first) - len(both), "second": len(second) - len(both)}
    unshared = [name for name in (*one.swept, *other.swept) if name not in shared]
    sentences = (
        format_verdict(len(both), moves),
        *(f"{count:,} rows are in the {which} alone." for which, count in alone.items() if count),
        f"Only one side sweeps {', '.join(unshared)}; of points that differ in nothing else, the first is compared."
        if unshared
        else "",
        format_settings(settings),
        format_origins(one.about, other.about),
    )
    changed = [move for move in moves if move.identical < move.rows]
    caption = "How each metric moved; the mean difference is the second minus the first."
    lines = tuple(move.line for move in changed)
    numbers = Table("numbers", caption, HEAD, lines, deep_places(move.metric for move in changed))
    is_moved = any(move.moved for move in moves if move.metric not in ROUNDING) or any(alone.values()) or not both
    depth = depth_of(one.about) if depth_of(one.about) == depth_of(other.about) else "all"
    shown = tuple(table for table in (numbers, settings) if table.lines)
    return Versus(one.name, other.name, is_moved, tuple(filter(None, sentences)), shown, depth)


def measure_move(name: str, both: Mapping[str, tuple[Row, Row]]) -> Move | None:
    """Compare a metric; None if neither side has a number of it."""
    pairs = np.array([[float(row[name] or "nan") for row in rows] for rows in both.values()]).reshape(-1, 2)
    places, keys = np.isfinite(pairs).any(axis=1), list(both)
    if not places.any():
        return None
    first, second = pairs.T
    identical = (first == second) | np.isnan(pairs).all(axis=1)
    far = ~np.isclose(first, second, rtol=NEAR, atol=NEAR, equal_nan=True)
    apart = find_distances(first, second, identical)
    place = int(np.argmax(np.where(far, apart, 0.0) if far.any() else apart))
    counts = int(places.sum()), int((identical & places).sum()), int(far.sum())
    numbers = [brief(float(number)) for number in (apart[place], first[place], second[place])]
    mean = brief(float((second - first)[places].mean()))
    return Move(name, *counts, (name, *map(str, counts), numbers[0], keys[place], *numbers[1:], mean))


def find_distances(first: Array, second: Array, identical: Array) -> Array:
    """Return absolute differences; infinite where only one side has a number."""
    with np.errstate(invalid="ignore"):
        return np.where(identical, 0.0, np.nan_to_num(np.abs(second - first), nan=np.inf, posinf=np.inf))


def format_verdict(count: int, moves: Sequence[Move]) -> str:
    """Return a sentence on whether any number differs."""
    if not count:
        return "No row is in both: they share no combination of settings, seed and variant."
    beyond = [move for move in moves if move.moved and move.metric not in ROUNDING]
    rows = count_things(count, "row")
    if beyond:
        most = max(move.moved for move in beyond)
        return f"Numbers moved in {most:,} of {rows} that both have: {', '.join(move.metric for move in beyond)}."
    if all(move.identical == move.rows for move in moves):
        return f"No number moved: {rows} in both are the same to the bit."
    return words.ONLY_ROUNDING.format(where=f"{rows} that both have")
