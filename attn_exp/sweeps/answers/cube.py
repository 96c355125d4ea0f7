"""The rows of a sweep as arrays, with an axis for each setting, one for the variants and one for the seeds."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from attn_exp import rules
from attn_exp.arrays import Array
from attn_exp.experiment.row import COLUMNS
from attn_exp.report.sweep.plotted import ALL

OK = "ok"
"""Value of the column `status` for a point that has its rows."""

MOST_POINTS = 50_000
"""Maximum number of points compared in pairs; a larger sweep is limited to its first seeds."""
MOST_CELLS = 4_000_000
METRICS = tuple(name for name, column in COLUMNS.items() if column.summed)
OWN = tuple(name for name in METRICS if name not in ("shift", "cosine"))
"""Metrics of a variant alone; the others compare it with the baseline row."""
OF_SHARES = ("largest_weight", "sink", "sparsity")
"""Metrics of weights; rows are comparable only if the weights of both sum to 1, or of neither."""
OVER_QUERIES = ("entropy", "effective_keys", "largest_weight")
"""Means over the queries that can attend to any key."""
PAST = "past"
"""The setting with the number of tokens that have no query."""
VARIANT = "variant"
PINNED = ("head", "kv_head", "scale", "bias", "mask", "score", "position", "normalizer", "convention", "mistake")
RESOLVED = (*(f"variant_{name}" for name in PINNED), "form", "multiplier", "output_projection", "computed_in")
"""Columns with the settings of a row as the variant resolved them, whatever the point set."""


@dataclass(frozen=True)
class Cube:
    """Measured numbers `[levels of each setting ..., variants, seeds]`, NaN where one is missing.

    `names` and `levels` are the settings that vary and their values, the variants last; zipped settings count as one.
    `resolved` indexes `settings`, the settings that rows really had; equal `letters` mark the variants of a point that
    compute the same, `queries` numbers the sets of queries that means are over. All three are -1 where a point has no
    result. `left_out` counts the seeds beyond the limit.
    """

    names: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    seeds: tuple[str, ...]
    numbers: Mapping[str, Array]
    resolved: Array
    letters: Array
    queries: Array
    settings: tuple[Mapping[str, str], ...] = ()
    left_out: int = 0

    @property
    def variants(self) -> tuple[str, ...]:
        return self.levels[-1]

    def find_pinned_value(self, setting: str) -> str:
        """Return the value that a setting has in every row, whatever the points set; empty if it varies."""
        numbers = np.unique(self.resolved[self.resolved >= 0]).tolist()
        values = {self.settings[number].get(f"variant_{setting}", "") for number in numbers}
        return values.pop() if len(values) == 1 else ""

    def find_groups(self, metric: str) -> Array:
        """Number the rows by what makes a metric comparable: the queries it is averaged over, and the sum of the
        weights."""
        over_queries = metric in OVER_QUERIES or metric not in METRICS or (PAST in self.names and metric == "shift")
        groups: Array = self.queries if over_queries else np.zeros_like(self.queries)
        return 2 * groups + self.sums_to_one if metric in OF_SHARES else groups

    @cached_property
    def sums_to_one(self) -> Array:
        """Whether the weights of each row are non-negative and sum to 1."""
        names = (settings.get("variant_normalizer", "softmax") for settings in self.settings)
        known = (rules.normalizer(name if rules.has("normalizer", name) else "softmax") for name in names)
        return np.array([*(each.sums_to_one and not each.signed for each in known), True])[self.resolved]


@dataclass
class Gatherer:
    """Collects what a cube needs while the lines of a sweep's table stream through."""

    head: Sequence[str]
    axes: Sequence[Mapping[str, Any]]
    dimensions: Sequence[Sequence[int]]
    metrics: Sequence[str] = ()
    numbers: dict[str, array[float]] = field(default_factory=dict)
    places: array[int] = field(default_factory=lambda: array("q"))
    labels: list[dict[str, int]] = field(default_factory=list)
    seeds: dict[str, int] = field(default_factory=dict)
    variants: dict[str, int] = field(default_factory=dict)
    resolved: dict[tuple[str, ...], int] = field(default_factory=dict)
    queries: dict[str, int] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)

    def watching(self, lines: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
        """Pass the lines on, recording each."""
        axes, columns = self.axes, [self.head.index(axis["column"]) for axis in self.axes]
        single = [group[0] for group in self.dimensions if len(group) == 1]
        seed = next((place for place in single if axes[place]["key"] == "seed"), None)
        groups = self.groups
        self.labels = [{} for _ in groups]
        status, variant = self.head.index("status"), self.head.index("variant")
        alone = any(map(of_single_variants, axes))  # letters are assigned within a point
        letter = self.head.index("same_as") if "same_as" in self.head and not alone else variant
        queries = self.head.index("queries") if "queries" in self.head else None
        kept = [self.head.index(name) for name in self.kept]
        endless = [endless_text(axis) for axis in axes]
        metrics = [(name, self.head.index(name)) for name in (*METRICS, *self.metrics) if name in self.head]
        self.numbers = {name: array("d") for name, _ in metrics}
        most = self.most_seeds()
        for line in lines:
            yield line
            if line[status] != OK:
                continue
            named = line[columns[seed]] if seed is not None else ""
            if named not in self.seeds and len(self.seeds) >= most:
                self.left_out.add(named)
                continue
            at = [
                numbered(labels, ", ".join(label_of(line[columns[place]], endless[place]) for place in group))
                for labels, group in zip(self.labels, groups, strict=True)
            ]
            settings = numbered(self.resolved, tuple(line[column] for column in kept))
            mark = ord(line[letter][0]) if line[letter] and letter != variant else -1
            seen = 0 if queries is None else numbered(self.queries, line[queries])
            at += [numbered(self.variants, line[variant]), numbered(self.seeds, named), settings, mark, seen]
            self.places.extend(at)
            for name, column in metrics:
                self.numbers[name].append(float(line[column] or "nan"))

    @property
    def groups(self) -> list[Sequence[int]]:
        """The indices of the axes that are settings, zipped ones grouped.

        Seeds and variants have axes of their own: points of one variant each are compared along the variants' axis.
        """
        apart = [place for place, axis in enumerate(self.axes) if axis["key"] == "seed" or of_single_variants(axis)]
        return [group for group in self.dimensions if len(group) > 1 or group[0] not in apart]

    @property
    def kept(self) -> list[str]:
        """The columns of the resolved settings of a row."""
        return [name for name in RESOLVED if name in self.head]

    def most_seeds(self) -> int:
        """Return how many seeds are compared: all, or as many as fit into `MOST_POINTS`."""
        return max(1, MOST_POINTS // prod(int(self.axes[group[0]]["count"]) for group in self.groups))

    def cube(self) -> Cube | None:
        """Return the recorded lines as arrays; None if there are none, or far too many."""
        shape = (*map(len, self.labels), len(self.variants), len(self.seeds))
        if not self.places or prod(shape) > MOST_CELLS:
            return None
        table = np.frombuffer(self.places, dtype=np.int64).reshape(-1, len(shape) + 3)
        cell = np.ravel_multi_index(tuple(table[:, : len(shape)].T), shape)
        groups = [[self.axes[place]["column"] for place in group] for group in self.groups]
        resolved, letters, queries = (spread(column, cell, shape, -1) for column in table[:, len(shape) :].T)
        return Cube(
            (*(", ".join(names) for names in groups), VARIANT),
            (*map(tuple, self.labels), tuple(self.variants)),
            tuple(self.seeds),
            {name: spread(np.array(column), cell, shape, np.nan) for name, column in self.numbers.items()},
            resolved,
            letters,
            queries,
            tuple(dict(zip(self.kept, values, strict=True)) for values in self.resolved),
            len(self.left_out),
        )


def of_single_variants(axis: Mapping[str, Any]) -> bool:
    """Return whether an axis is `variant`, with a single variant in each value."""
    return axis["key"] == "variant" and not any("[" in word for word in axis.get("words", "["))


def endless_text(axis: Mapping[str, Any]) -> str | None:
    """Return the text of the axis value that means no limit; None if there is none."""
    value = rules.endless(axis["key"])
    return None if value is None else str(value)


def label_of(text: str, endless: str | None) -> str:
    """Return the label of a value; the one that means no limit is `all`."""
    return ALL if text == endless else text


def numbered(known: dict[Any, int], label: Any) -> int:
    """Return the number of a label, assigning the next one to a new label."""
    return known.setdefault(label, len(known))


def spread(values: Array, cell: Array, shape: tuple[int, ...], empty: float) -> Array:
    """Scatter values into an array of this shape, filling the other cells with `empty`."""
    spread = np.full(prod(shape), empty, dtype=values.dtype)
    spread[cell] = values
    return spread.reshape(shape)
