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
# built-in metrics, whose means over the points are computed
METRICS = tuple(name for name, column in COLUMNS.items() if column.summed)
# settings of a run that a variant may override
PINNED = ("head", "kv_head", "scale", "bias", "mask", "score", "position", "normalizer", "convention", "mistake")
RESOLVED = (*(f"variant_{name}" for name in PINNED), "form", "multiplier", "output_projection", "computed_in")
"""Columns with the settings that a variant really used; they may differ from the point's settings."""

MOST_POINTS = 50_000
"""Maximum number of points compared in pairs; of a larger sweep, only the first seeds are compared."""
MOST_CELLS = 4_000_000  # maximum number of elements in one array of a cube
OWN = tuple(name for name in METRICS if name not in ("max_diff", "cosine"))
"""Metrics of a single variant; all other metrics compare a variant with the baseline row."""
OF_SHARES = ("largest_weight", "sink", "sparsity")
"""Metrics of weights; two rows are comparable only if the weights sum to 1 in both or in neither."""
OVER_QUERIES = ("entropy", "effective_keys", "largest_weight")
"""Means over the queries that can attend to at least one key."""
PAST = "past"
"""The setting for the number of tokens in the KV cache; these tokens have no query."""
VARIANT = "variant"


class Column(NamedTuple):
    """The distinct values of a column in order of first appearance, and the index of each row's value."""

    labels: tuple[Any, ...]
    codes: Array


Failed = tuple[int, str]  # the number of a point and its error


@dataclass(frozen=True)
class Rows:
    """The rows of all points that did not fail, in order, and the points that failed.

    - `points`: the number of each row's point.
    - `texts`: the swept settings and other columns of strings, by name.
    - `numbers`: the metrics, by name.
    - `settings`: one column of tuples, the settings that each row really used. `resolved`: the names of these settings.
    """

    points: Array
    texts: Mapping[str, Column]
    numbers: Arrays
    settings: Column
    resolved: Sequence[str]
    failed: Sequence[Failed]


def read_rows(head: Sequence[str], lines: Iterable[Sequence[str]], axes: Axes, metrics: Sequence[str]) -> Rows:
    """Read the lines of a sweep's table; `metrics` names the metrics that are not built in."""
    index_of = {name: index for index, name in enumerate(head)}
    names = (*(axis["column"] for axis in axes), "variant", "queries", "agree")
    # for each column of strings: the code of each label, in order of first appearance, and the code of each row
    label_codes = {name: dict[str, int]() for name in names if name in index_of}
    codes = {name: array("q") for name in label_codes}
    numbers = {name: array("d") for name in (*METRICS, *metrics) if name in index_of}
    resolved = [name for name in RESOLVED if name in index_of]
    columns = [(index_of[name], label_codes[name], codes[name]) for name in label_codes]
    measured = [(index_of[name], numbers[name]) for name in numbers]
    settings_codes, settings, points = dict[tuple[str, ...], int](), array("q"), array("q")
    failed = []
    for line in lines:
        if line[index_of["status"]] != OK:
            failed.append((int(line[0]), f"{line[index_of['status']]}: {line[index_of['message']]}"))
            continue
        points.append(int(line[0]))
        for index, labels, column in columns:
            column.append(labels.setdefault(line[index], len(labels)))
        for index, measures in measured:
            measures.append(float(line[index] or "nan"))
        settings.append(
            settings_codes.setdefault(tuple(line[index_of[name]] for name in resolved), len(settings_codes))
        )
    endless_labels = {axis["column"]: endless_text(axis) for axis in axes}
    texts = {
        name: Column(
            tuple(ALL if label == endless_labels.get(name) else label for label in label_codes[name]),
            np.array(codes[name]),
        )
        for name in label_codes
    }
    return Rows(
        np.array(points),
        texts,
        {name: np.array(column) for name, column in numbers.items()},
        Column(tuple(settings_codes), np.array(settings)),
        resolved,
        failed,
    )


def endless_text(axis: Mapping[str, Any]) -> str | None:
    """Return the value of an axis that means no limit, as text; None if its setting has no such value."""
    value = rules.endless(axis["key"])
    return None if value is None else str(value)


def combine(columns: Sequence[Column]) -> Column:
    """Return one column whose values are tuples of the values of these columns."""
    code_of: dict[tuple[Any, ...], int] = {}
    texts = (map(column.labels.__getitem__, column.codes.tolist()) for column in columns)
    codes = [code_of.setdefault(labels, len(code_of)) for labels in zip(*texts, strict=True)]
    return Column(tuple(code_of), np.array(codes, dtype=np.int64))


@dataclass(frozen=True)
class Cube:
    """The rows of a sweep as arrays `[levels of each setting ..., variants, seeds]`.

    - `names`, `levels`: the settings that vary and their values, the variants last. Zipped settings count as one.
    - `numbers`: the metrics, by name; NaN where a value is missing.
    - `resolved`: the index in `settings` of the settings that a row really used; -1 where a point has no result.
    - `queries`: identifies the set of queries over which a row's means are taken; -1 where a point has no result.
    - `left_out`: the number of seeds that are beyond the limit `MOST_POINTS`.
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
        """Label the rows: a metric is comparable between two rows if they have the same label.

        A mean over queries is comparable between rows with the same queries. A metric of weights is comparable between
        two rows if the weights of both sum to 1, or if those of neither do.
        """
        over_queries = metric in OVER_QUERIES or metric not in METRICS or (PAST in self.names and metric == "max_diff")
        groups = self.queries if over_queries else np.zeros_like(self.queries)
        return 2 * groups + self.sums_to_one if metric in OF_SHARES else groups

    @cached_property
    def sums_to_one(self) -> Array:
        """Whether the weights of each row are non-negative and sum to 1."""
        names = (settings.get("variant_normalizer", "softmax") for settings in self.settings)
        normalizers = (rules.normalizer(name if name in rules.names("normalizer") else "softmax") for name in names)
        return np.array([*(normalizer.sums_to_one and not normalizer.signed for normalizer in normalizers), True])[
            self.resolved
        ]


def make_cube(rows: Rows, axes: Axes, dimensions: Sequence[Sequence[int]], metrics: Sequence[str]) -> Cube | None:
    """Return the rows as arrays; None if there are no rows, or too many.

    Seeds and variants have their own axes; points with a single variant each are compared along the variant axis.
    """
    # axes over `variant` whose values are single variants, in brackets or not
    variant_axes = [
        index
        for index, axis in enumerate(axes)
        if axis["key"] == "variant" and "," not in "".join(axis.get("words", ","))
    ]
    seed_axes = [group[0] for group in dimensions if len(group) == 1 and axes[group[0]]["key"] == "seed"]
    groups = [group for group in dimensions if len(group) > 1 or group[0] not in (*variant_axes, *seed_axes)]
    columns = [combine([rows.texts[axes[axis_index]["column"]] for axis_index in group]) for group in groups]
    constant = Column(("",), np.zeros_like(rows.points))
    seeds = rows.texts[axes[seed_axes[0]]["column"]] if seed_axes else constant
    most_seeds = max(1, MOST_POINTS // prod(int(axes[group[0]]["count"]) for group in groups))
    variants = rows.texts["variant"]
    shape = (*(len(column.labels) for column in (*columns, variants)), len(seeds.labels[:most_seeds]))
    kept = seeds.codes < most_seeds
    if not kept.any() or prod(shape) > MOST_CELLS:
        return None
    cells = np.ravel_multi_index(tuple(column.codes[kept] for column in (*columns, variants, seeds)), shape)

    def make_array(values: Array, empty: float) -> Array:
        filled = np.full(prod(shape), empty, dtype=values.dtype)
        filled[cells] = values[kept]
        return filled.reshape(shape)

    return Cube(
        (*(", ".join(axes[axis_index]["column"] for axis_index in group) for group in groups), VARIANT),
        (*(tuple(map(", ".join, column.labels)) for column in columns), variants.labels),
        seeds.labels[:most_seeds],
        {name: make_array(rows.numbers[name], np.nan) for name in (*METRICS, *metrics) if name in rows.numbers},
        make_array(rows.settings.codes, -1),
        make_array(rows.texts.get("queries", constant).codes, -1),
        tuple(dict(zip(rows.resolved, values, strict=True)) for values in rows.settings.labels),
        len(seeds.labels[most_seeds:]),
    )
