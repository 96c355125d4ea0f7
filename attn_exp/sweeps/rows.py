"""The rows of a sweep's table, as columns and as arrays with an axis for each setting."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from attn_exp import rules
from attn_exp.arrays import Array, Arrays
from attn_exp.experiment.row import COLUMNS
from attn_exp.report.sweep_plots import ALL

Axes = Sequence[Mapping[str, Any]]
"""The axes of a sweep, as described in its manifest."""
OK = "ok"
"""Value of the column `status` for a point that did not fail."""
METRICS = tuple(name for name, column in COLUMNS.items() if column.summed)
PINNED = ("head", "kv_head", "scale", "bias", "mask", "score", "position", "normalizer", "convention", "mistake")
RESOLVED = (*(f"variant_{name}" for name in PINNED), "form", "multiplier", "output_projection", "computed_in")
"""Columns with the settings that a variant really used, which may differ from those of the point."""

MOST_POINTS = 50_000
"""Maximum number of points compared in pairs; of a larger sweep, only the first seeds are compared."""
MOST_CELLS = 4_000_000
OWN = tuple(name for name in METRICS if name not in ("max_diff", "cosine"))
"""Metrics of a single variant; all other metrics compare a variant with the baseline row."""
OF_SHARES = ("largest_weight", "sink", "sparsity")
"""Metrics of weights; two rows are comparable only if the weights sum to 1 in both or in neither."""
OVER_QUERIES = ("entropy", "effective_keys", "largest_weight")
"""Means over the queries that can attend to at least one key."""
PAST = "past"
"""The setting for the number of tokens in the KV cache, which have no query."""
VARIANT = "variant"


class Column(NamedTuple):
    """The distinct values of a column in order of first appearance, and the index of each row's value."""

    labels: tuple[Any, ...]
    codes: Array


Failed = tuple[int, str]
"""A failed point: its number and its error."""


@dataclass(frozen=True)
class Rows:
    """The rows of all points that did not fail, in order, and the points that failed.

    `texts` holds the swept settings and other columns of strings, `numbers` the metrics. `settings` is one column of
    tuples, the settings that each row actually used, and `resolved` holds their names.
    """

    points: Array
    texts: Mapping[str, Column]
    numbers: Arrays
    settings: Column
    resolved: Sequence[str]
    failed: Sequence[Failed]


def read_rows(head: Sequence[str], lines: Iterable[Sequence[str]], axes: Axes, metrics: Sequence[str]) -> Rows:
    """Read the lines of a sweep's table; `metrics` names the metrics that are not built in."""
    places = {name: place for place, name in enumerate(head)}
    names = (*(axis["column"] for axis in axes), "variant", "queries", "agree")
    known = {name: dict[str, int]() for name in names if name in places}
    codes = {name: array("q") for name in known}
    numbers = {name: array("d") for name in (*METRICS, *metrics) if name in places}
    resolved = [name for name in RESOLVED if name in places]
    columns = [(places[name], known[name], codes[name]) for name in known]
    measured = [(places[name], numbers[name]) for name in numbers]
    combinations, settings, points = dict[tuple[str, ...], int](), array("q"), array("q")
    failed = []
    for line in lines:
        if line[places["status"]] != OK:
            failed.append((int(line[0]), f"{line[places['status']]}: {line[places['message']]}"))
            continue
        points.append(int(line[0]))
        for place, labels, column in columns:
            column.append(labels.setdefault(line[place], len(labels)))
        for place, measures in measured:
            measures.append(float(line[place] or "nan"))
        settings.append(combinations.setdefault(tuple(line[places[name]] for name in resolved), len(combinations)))
    endless = {axis["column"]: endless_text(axis) for axis in axes}
    texts = {
        name: Column(
            tuple(ALL if label == endless.get(name) else label for label in known[name]), np.array(codes[name])
        )
        for name in known
    }
    return Rows(
        np.array(points),
        texts,
        {name: np.array(column) for name, column in numbers.items()},
        Column(tuple(combinations), np.array(settings)),
        resolved,
        failed,
    )


def endless_text(axis: Mapping[str, Any]) -> str | None:
    value = rules.endless(axis["key"])
    return None if value is None else str(value)


def combine(columns: Sequence[Column]) -> Column:
    known: dict[tuple[Any, ...], int] = {}
    texts = (map(column.labels.__getitem__, column.codes.tolist()) for column in columns)
    codes = [known.setdefault(each, len(known)) for each in zip(*texts, strict=True)]
    return Column(tuple(known), np.array(codes, dtype=np.int64))


@dataclass(frozen=True)
class Cube:
    """Metrics as arrays `[levels of each setting ..., variants, seeds]`, NaN where a value is missing.

    `names` and `levels` are the settings that vary and their values, the variants last; zipped settings count as one.
    `resolved` is an index into `settings`, the settings that each row really used, and `queries` identifies the set of
    queries that a row's means are taken over; both are -1 where a point has no result. `left_out` is the number of
    seeds beyond the limit.
    """

    names: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    seeds: tuple[str, ...]
    numbers: Arrays
    resolved: Array
    queries: Array
    settings: tuple[Mapping[str, str], ...] = ()
    left_out: int = 0

    @property
    def variants(self) -> tuple[str, ...]:
        return self.levels[-1]

    def find_groups(self, metric: str) -> Array:
        """Label the rows: those with the same label have comparable values (the same queries and sum of weights)."""
        over_queries = metric in OVER_QUERIES or metric not in METRICS or (PAST in self.names and metric == "max_diff")
        groups = self.queries if over_queries else np.zeros_like(self.queries)
        return 2 * groups + self.sums_to_one if metric in OF_SHARES else groups

    @cached_property
    def sums_to_one(self) -> Array:
        """Whether the weights of each row are non-negative and sum to 1."""
        names = (settings.get("variant_normalizer", "softmax") for settings in self.settings)
        known = (rules.normalizer(name if name in rules.names("normalizer") else "softmax") for name in names)
        return np.array([*(each.sums_to_one and not each.signed for each in known), True])[self.resolved]


def make_cube(rows: Rows, axes: Axes, dimensions: Sequence[Sequence[int]], metrics: Sequence[str]) -> Cube | None:
    """Return the rows as arrays; None if there are no rows, or too many.

    Seeds and variants have their own axes; points with a single variant each are compared along the variant axis.
    """
    # axes over `variant` whose values are single variants, in brackets or not
    alone = [
        at for at, axis in enumerate(axes) if axis["key"] == "variant" and "," not in "".join(axis.get("words", ","))
    ]
    seeded = [group[0] for group in dimensions if len(group) == 1 and axes[group[0]]["key"] == "seed"]
    groups = [group for group in dimensions if len(group) > 1 or group[0] not in (*alone, *seeded)]
    columns = [combine([rows.texts[axes[place]["column"]] for place in group]) for group in groups]
    nothing = Column(("",), np.zeros_like(rows.points))
    seeds = rows.texts[axes[seeded[0]]["column"]] if seeded else nothing
    most = max(1, MOST_POINTS // prod(int(axes[group[0]]["count"]) for group in groups))
    variants = rows.texts["variant"]
    shape = (*(len(column.labels) for column in (*columns, variants)), len(seeds.labels[:most]))
    kept = seeds.codes < most
    if not kept.any() or prod(shape) > MOST_CELLS:
        return None
    cell = np.ravel_multi_index(tuple(column.codes[kept] for column in (*columns, variants, seeds)), shape)

    def spread(values: Array, empty: float) -> Array:
        spread = np.full(prod(shape), empty, dtype=values.dtype)
        spread[cell] = values[kept]
        return spread.reshape(shape)

    return Cube(
        (*(", ".join(axes[place]["column"] for place in group) for group in groups), VARIANT),
        (*(tuple(map(", ".join, column.labels)) for column in columns), variants.labels),
        seeds.labels[:most],
        {name: spread(rows.numbers[name], np.nan) for name in (*METRICS, *metrics) if name in rows.numbers},
        spread(rows.settings.codes, -1),
        spread(rows.texts.get("queries", nothing).codes, -1),
        tuple(dict(zip(rows.resolved, values, strict=True)) for values in rows.settings.labels),
        len(seeds.labels[most:]),
    )
