"""The rows of a sweep's table as columns, read once: numbers as arrays, texts as the numbers of their labels."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from attn_exp import rules
from attn_exp.arrays import Array
from attn_exp.experiment.row import COLUMNS
from attn_exp.report.sweep.plotted import ALL

Axes = Sequence[Mapping[str, Any]]
"""The axes of a sweep as its manifest describes them."""
OK = "ok"
"""Value of the column `status` for a point that has its rows."""
METRICS = tuple(name for name, column in COLUMNS.items() if column.summed)
PINNED = ("head", "kv_head", "scale", "bias", "mask", "score", "position", "normalizer", "convention", "mistake")
RESOLVED = (*(f"variant_{name}" for name in PINNED), "form", "multiplier", "output_projection", "computed_in")
"""Columns with the settings of a row as the variant resolved them, whatever the point set."""


class Column(NamedTuple):
    """The different texts of a column in the order of their first rows, and for each row the number of its own."""

    labels: tuple[Any, ...]
    codes: Array

    @property
    def texts(self) -> Iterator[Any]:
        return map(self.labels.__getitem__, self.codes.tolist())

    def relabel(self, labels: Sequence[Any]) -> Column:
        return self._replace(labels=tuple(labels))


Failed = tuple[int, str, Mapping[str, str]]
"""A point that failed: its number, its error, and its swept settings."""


@dataclass(frozen=True)
class Rows:
    """The rows of all points that did not fail, in their order, and the points that did.

    `texts` holds the swept settings and the other texts by column, `numbers` the metrics, `settings` the resolved
    settings of each row as one column of tuples, whose names are `resolved`.
    """

    points: Array
    texts: Mapping[str, Column]
    numbers: Mapping[str, Array]
    settings: Column
    resolved: Sequence[str]
    failed: Sequence[Failed]


def read_rows(head: Sequence[str], lines: Iterable[Sequence[str]], axes: Axes, metrics: Sequence[str]) -> Rows:
    """Read the lines of a sweep's table; `metrics` are those that are not built in."""
    places = {name: place for place, name in enumerate(head)}
    swept = [axis["column"] for axis in axes]
    known = {name: dict[str, int]() for name in (*swept, "variant", "queries", "agree") if name in places}
    codes = {name: array("q") for name in known}
    numbers = {name: array("d") for name in (*METRICS, *metrics) if name in places}
    resolved = [name for name in RESOLVED if name in places]
    columns = [(places[name], known[name], codes[name]) for name in known]
    measured = [(places[name], numbers[name]) for name in numbers]
    combinations, settings, points = dict[tuple[str, ...], int](), array("q"), array("q")
    failed: list[Failed] = []
    for line in lines:
        if line[places["status"]] != OK:
            message = f"{line[places['status']]}: {line[places['message']]}"
            failed.append((int(line[0]), message, {name: line[places[name]] for name in swept}))
            continue
        points.append(int(line[0]))
        for place, labels, column in columns:
            column.append(labels.setdefault(line[place], len(labels)))
        for place, measures in measured:
            measures.append(float(line[place] or "nan"))
        settings.append(combinations.setdefault(tuple(line[places[name]] for name in resolved), len(combinations)))
    texts = {name: Column(tuple(known[name]), np.array(codes[name])) for name in known}
    for axis in axes:
        text, endless = texts[axis["column"]], endless_text(axis)
        texts[axis["column"]] = text.relabel([ALL if label == endless else label for label in text.labels])
    return Rows(
        np.array(points),
        texts,
        {name: np.array(column) for name, column in numbers.items()},
        Column(tuple(combinations), np.array(settings)),
        resolved,
        failed,
    )


def endless_text(axis: Mapping[str, Any]) -> str | None:
    """Return the text of the axis value that means no limit; None if there is none."""
    value = rules.endless(axis["key"])
    return None if value is None else str(value)


def combine(columns: Sequence[Column]) -> Column:
    """Return the combinations of several columns as one column of tuples."""
    known: dict[tuple[Any, ...], int] = {}
    codes = [known.setdefault(each, len(known)) for each in zip(*(column.texts for column in columns), strict=True)]
    return Column(tuple(known), np.array(codes, dtype=np.int64))
