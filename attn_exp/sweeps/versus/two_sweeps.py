"""Two sweeps side by side: the points that both have, and which of their numbers moved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attn_exp.report import words
from attn_exp.report.numbers import brief
from attn_exp.report.papers import Table, deep_places
from attn_exp.report.versus import Versus
from attn_exp.sweeps.answers.cube import METRICS, OK
from attn_exp.sweeps.answers.effects import compared
from attn_exp.sweeps.answers.phrases import ranged, signed
from attn_exp.sweeps.overview import depth_of
from attn_exp.sweeps.versus.versus import common, counted, differing, made_by, settings_apart, settings_table

ROUNDING = ("error", "error_ulp", "row_sum_error")
"""Metrics that are rounding themselves: they move with it, and nothing is wrong."""
NEAR = 256 * np.finfo(np.float64).eps
"""Numbers nearer than this share of the larger, or than this itself, are the same to rounding."""

Key = tuple[str, ...]


@dataclass
class Side:
    """One sweep: its description, and the lines of its table without their head."""

    name: str
    about: Mapping[str, Any]
    head: Sequence[str]
    lines: Iterator[Sequence[str]]
    points: dict[Key, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Move:
    """How one metric moved between the rows that both sweeps have."""

    metric: str
    rows: int
    identical: int
    moved: int
    largest: float
    where: str
    first: float
    second: float
    mean: str


def versus(one: Side, other: Side) -> Versus:
    """Return two sweeps side by side, matched by the settings that both sweep, the seed and the variant."""
    shared = [axis["column"] for axis in one.about["axes"] if axis["column"] in columns(other)]
    for side in (one, other):
        taken(side, shared)
    keys = [key for key in one.points if key in other.points]
    moves = [move for name in metrics(one, other) if (move := moved(name, shared, keys, one, other)) is not None]
    settings = settings_table(settings_apart(settings_of(one), settings_of(other)))
    alone = [sum(key not in theirs.points for key in ours.points) for ours, theirs in ((one, other), (other, one))]
    differs = any(move.moved for move in moves if move.metric not in ROUNDING) or any(alone) or not keys
    sentences = (
        verdict(keys, moves),
        *(
            f"{count:,} rows are in the {which} alone."
            for which, count in zip(("first", "second"), alone, strict=True)
            if count
        ),
        not_shared(one, other, shared),
        differing(settings),
        made_by(one.about, other.about),
    )
    tables = (moves_table([move for move in moves if move.largest]), settings)
    depth, shown = common(depth_of(one.about), depth_of(other.about)), tuple(table for table in tables if table.lines)
    return Versus(one.name, other.name, differs, tuple(filter(None, sentences)), shown, depth)


def columns(side: Side) -> list[str]:
    """Return the columns of the swept settings."""
    return [axis["column"] for axis in side.about["axes"]]


def metrics(one: Side, other: Side) -> list[str]:
    """Return the metrics that both tables have."""
    names = (*METRICS, *one.about["metrics"])
    return [name for name in names if name in one.head and name in other.head]


def settings_of(side: Side) -> dict[str, str]:
    """Return the settings of all points, and what was swept, by name."""
    fixed = dict(word.lstrip("+").partition("=")[::2] for word in side.about["fixed"])
    return fixed | {axis["key"]: f"swept, {axis['count']:,} values" for axis in side.about["axes"]}


def taken(side: Side, shared: Sequence[str]) -> None:
    """Read the lines of a sweep, by their shared settings and their variant; of several alike, the first."""
    places = [side.head.index(name) for name in (*shared, "variant")]
    status = side.head.index("status")
    for line in side.lines:
        if line[status] == OK:
            key = tuple(line[place] for place in places)
            side.points.setdefault(key, dict(zip(side.head, line, strict=True)))


def moved(name: str, shared: Sequence[str], keys: Sequence[Key], one: Side, other: Side) -> Move | None:
    """Return how a metric moved; None where neither side has a number of it."""
    first, second = (np.array([number(side.points[key][name]) for key in keys]) for side in (one, other))
    there = np.isfinite(first) | np.isfinite(second)
    if not there.any():
        return None
    identical = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore"):
        apart = np.where(identical, 0.0, np.abs(second - first))
        near = identical | (apart <= NEAR * np.maximum(1.0, np.maximum(np.abs(first), np.abs(second))))
    apart = np.where(np.isnan(apart), np.inf, apart)
    place = int(np.argmax(np.where(near, 0.0, apart) if not near.all() else apart))
    where = " ".join(f"{key}={value}" for key, value in zip((*shared, "variant"), keys[place], strict=True))
    rows, same, far = int(there.sum()), int((identical & there).sum()), int((~near).sum())
    mean = mean_difference(shared, keys, first, second)
    return Move(name, rows, same, far, float(apart[place]), where, float(first[place]), float(second[place]), mean)


def mean_difference(shared: Sequence[str], keys: Sequence[Key], first: Any, second: Any) -> str:
    """Write the mean of the differences, seed by seed, with its 95 % interval where there are seeds enough."""
    place = shared.index("seed") if "seed" in shared else None
    names = [key[place] if place is not None else "" for key in keys]
    seeds = list(dict.fromkeys(names))
    rows = {seed: [row for row, name in enumerate(names) if name == seed] for seed in seeds}
    if len({len(places) for places in rows.values()}) > 1:
        return ""
    table = np.array([rows[seed] for seed in seeds])
    difference = compared(first[table], second[table])
    if difference is None:
        return ""
    low, high = difference.low, difference.high
    if math.isnan(low) or low == high:
        return signed(difference.mean)
    return f"{signed(difference.mean)} ({ranged(low, high)})"


def number(text: str) -> float:
    """Return a cell as a number; NaN for an empty one."""
    return float(text) if text else math.nan


def verdict(keys: Sequence[Key], moves: Sequence[Move]) -> str:
    """Say whether any number moved."""
    if not keys:
        return "No row is in both: they share no combination of settings, seed and variant."
    beyond = [move for move in moves if move.moved and move.metric not in ROUNDING]
    rows = counted(len(keys), "row")
    if beyond:
        most = max(beyond, key=lambda move: move.moved)
        names = ", ".join(move.metric for move in beyond)
        return f"Numbers moved in {most.moved:,} of {rows} that both have: {names}."
    if all(move.identical == move.rows for move in moves):
        return f"No number moved: {rows} in both are the same to the bit."
    return words.ONLY_ROUNDING.format(where=f"{rows} that both have")


def not_shared(one: Side, other: Side, shared: Sequence[str]) -> str:
    """Say which settings one side alone sweeps."""
    alone = [name for name in (*columns(one), *columns(other)) if name not in shared]
    if not alone:
        return ""
    return f"Only one side sweeps {', '.join(alone)}; of its points that are alike otherwise, the first is compared."


def moves_table(moves: Sequence[Move]) -> Table:
    """Return how each metric moved, as a table."""
    head = (
        words.METRIC, words.ROWS, "same bits", "moved", words.LARGEST, "at", words.FIRST_ONE,
        words.SECOND_ONE, "mean difference",
    )  # fmt: skip
    lines = tuple(
        (
            move.metric, f"{move.rows}", f"{move.identical}", f"{move.moved}", brief(move.largest),
            move.where, brief(move.first), brief(move.second), move.mean,
        )
        for move in moves
    )  # fmt: skip
    deep = deep_places(move.metric for move in moves)
    caption = "How each metric moved; the mean difference is the second minus the first."
    return Table("numbers", caption, head, lines, deep)
