"""Compare two sweeps: the points in both, and which of their numbers differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.report import words
from attn_exp.report.escapes import brief
from attn_exp.report.papers import Table, deep_places
from attn_exp.report.versus import Versus
from attn_exp.sweeps.answers.rows import Rows, combine
from attn_exp.sweeps.differences import (
    count_things,
    format_origins,
    format_settings,
    settings_apart,
    settings_table,
)
from attn_exp.sweeps.manifest import About
from attn_exp.sweeps.overview import depth_of

ROUNDING = ("error", "error_ulp", "row_sum_error")
"""Metrics of rounding error; a change in them is no fault."""
NEAR = 256 * np.finfo(np.float64).eps
"""Relative and absolute tolerance within which numbers are the same to rounding."""
HEAD = (
    words.METRIC, words.ROWS, "same bits", "moved", words.LARGEST, "at", words.FIRST_ONE, words.SECOND_ONE,
    "mean difference",
)  # fmt: skip


class Side(NamedTuple):
    """One sweep: its folder, its description and its rows."""

    name: str
    about: About
    rows: Rows

    @property
    def swept(self) -> list[str]:
        return [axis["column"] for axis in self.about["axes"]]

    @property
    def settings(self) -> dict[str, str]:
        """The settings of all points, and the swept ones, by name."""
        fixed = dict(word.lstrip("+").partition("=")[::2] for word in self.about["fixed"])
        return fixed | {axis["key"]: f"swept, {axis['count']:,} values" for axis in self.about["axes"]}

    def find_rows(self, names: Sequence[str]) -> dict[tuple[str, ...], int]:
        """Return the first row of each combination of some columns."""
        keys = combine([self.rows.texts[name] for name in names])
        return dict(zip(keys.labels, np.unique(keys.codes, return_index=True)[1].tolist(), strict=True))


class Move(NamedTuple):
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
    first, second = (side.find_rows([*shared, "variant"]) for side in (one, other))
    both = [key for key in first if key in second]
    keys = [" ".join(map("=".join, zip((*shared, "variant"), key, strict=True))) for key in both]
    moves = []
    for name in [name for name in one.rows.numbers if name in other.rows.numbers]:
        numbers = one.rows.numbers[name][[first[key] for key in both]]
        others = other.rows.numbers[name][[second[key] for key in both]]
        moves += [measure_move(name, keys, numbers, others)] if np.isfinite([*numbers, *others]).any() else []
    changed = [move for move in moves if move.identical < move.rows]
    lines, deep = tuple(move.line for move in changed), deep_places(move.metric for move in changed)
    caption = "How each metric moved; the mean difference is the second minus the first."
    settings = settings_table(settings_apart(one.settings, other.settings))
    alone = {"first": len(first) - len(both), "second": len(second) - len(both)}
    unshared = ", ".join(name for name in (*one.swept, *other.swept) if name not in shared)
    only_one = f"Only one side sweeps {unshared}; of points that differ in nothing else, the first is compared."
    sentences = (
        format_verdict(len(both), moves),
        *(f"{count:,} rows are in the {which} alone." for which, count in alone.items() if count),
        only_one if unshared else "",
        format_settings(settings),
        format_origins(one.about, other.about),
    )
    is_moved = any(move.moved for move in moves if move.metric not in ROUNDING) or any(alone.values()) or not both
    shown = tuple(table for table in (Table("numbers", caption, HEAD, lines, deep), settings) if table.lines)
    depths = {depth_of(side.about) for side in (one, other)}
    depth = depths.pop() if len(depths) == 1 else "all"
    return Versus(one.name, other.name, is_moved, tuple(filter(None, sentences)), shown, depth)


def measure_move(name: str, keys: Sequence[str], first: Array, second: Array) -> Move:
    """Compare a metric in the rows of two sweeps."""
    places = np.isfinite(first) | np.isfinite(second)
    identical = (first == second) | (np.isnan(first) & np.isnan(second))
    far = ~np.isclose(first, second, rtol=NEAR, atol=NEAR, equal_nan=True)
    with np.errstate(invalid="ignore"):  # infinite where only one side has a number
        apart = np.where(identical, 0.0, np.nan_to_num(np.abs(second - first), nan=np.inf, posinf=np.inf))
    place = int(np.argmax(np.where(far, apart, 0.0) if far.any() else apart))
    counts = int(places.sum()), int((identical & places).sum()), int(far.sum())
    numbers = [brief(float(number)) for number in (apart[place], first[place], second[place])]
    mean = brief(float((second - first)[places].mean()))
    return Move(name, *counts, (name, *map(str, counts), numbers[0], keys[place], *numbers[1:], mean))


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
