"""The rows of a sweep as arrays, with an axis for each setting, one for the variants and one for the seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from attn_exp import rules
from attn_exp.arrays import Array
from attn_exp.sweeps.answers.rows import METRICS, Axes, Column, Rows, combine

MOST_POINTS = 50_000
"""Maximum number of points compared in pairs; a larger sweep is limited to its first seeds."""
MOST_CELLS = 4_000_000
OWN = tuple(name for name in METRICS if name not in ("shift", "cosine"))
"""Metrics of a variant alone; the others compare it with the baseline row."""
OF_SHARES = ("largest_weight", "sink", "sparsity")
"""Metrics of weights; rows are comparable only if the weights of both sum to 1, or of neither."""
OVER_QUERIES = ("entropy", "effective_keys", "largest_weight")
"""Means over the queries that can attend to any key."""
PAST = "past"
"""The setting with the number of tokens that have no query."""
VARIANT = "variant"


@dataclass(frozen=True)
class Cube:
    """Measured numbers `[levels of each setting ..., variants, seeds]`, NaN where one is missing.

    `names` and `levels` are the settings that vary and their values, the variants last; zipped settings count as one.
    `resolved` indexes `settings`, the settings that rows really had, `queries` numbers the sets of queries that means
    are over; both are -1 where a point has no result. `left_out` counts the seeds beyond the limit.
    """

    names: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    seeds: tuple[str, ...]
    numbers: Mapping[str, Array]
    resolved: Array
    queries: Array
    settings: tuple[Mapping[str, str], ...] = ()
    left_out: int = 0

    @property
    def variants(self) -> tuple[str, ...]:
        return self.levels[-1]

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


def make_cube(rows: Rows, axes: Axes, dimensions: Sequence[Sequence[int]], metrics: Sequence[str]) -> Cube | None:
    """Return the rows as arrays; None if there are none, or far too many.

    Seeds and variants have axes of their own: points of one variant each are compared along the variants' axis.
    """
    # `variant` with a single one in each value
    alone = [
        at for at, axis in enumerate(axes) if axis["key"] == "variant" and "[" not in "".join(axis.get("words", "["))
    ]
    seeded = [group[0] for group in dimensions if len(group) == 1 and axes[group[0]]["key"] == "seed"]
    groups = [group for group in dimensions if len(group) > 1 or group[0] not in (*alone, *seeded)]
    columns = [combine([rows.texts[axes[place]["column"]] for place in group]) for group in groups]
    nothing = Column(("",), np.zeros_like(rows.points))
    seeds = rows.texts[axes[seeded[0]]["column"]] if seeded else nothing
    most = max(1, MOST_POINTS // prod(int(axes[group[0]]["count"]) for group in groups))
    levels = [*columns, rows.texts["variant"], seeds.relabel(seeds.labels[:most])]
    shape, kept = tuple(len(column.labels) for column in levels), seeds.codes < most
    if not kept.any() or prod(shape) > MOST_CELLS:
        return None
    cell = np.ravel_multi_index(tuple(column.codes[kept] for column in levels), shape)

    def spread(values: Array, empty: float) -> Array:
        spread = np.full(prod(shape), empty, dtype=values.dtype)
        spread[cell] = values[kept]
        return spread.reshape(shape)

    return Cube(
        (*(", ".join(axes[place]["column"] for place in group) for group in groups), VARIANT),
        (*(tuple(map(", ".join, column.labels)) for column in columns), rows.texts["variant"].labels),
        seeds.labels[:most],
        {name: spread(rows.numbers[name], np.nan) for name in (*METRICS, *metrics) if name in rows.numbers},
        spread(rows.settings.codes, -1),
        spread(rows.texts.get("queries", nothing).codes, -1),
        tuple(dict(zip(rows.resolved, values, strict=True)) for values in rows.settings.labels),
        len(seeds.labels[most:]),
    )
