"""The rows of a sweep's table: those that a setting cannot change are one row, in which it is `any`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from attn_exp.report.numbers import brief
from attn_exp.sweeps.answers.effects import FEW
from attn_exp.sweeps.tally import Tally
from attn_exp.sweeps.totals import Moments, Summary

ANY = "any"


@dataclass(frozen=True)
class Merged:
    """A row: its labels, the combination that it shows, how many points it stands for, and how many results agree."""

    labels: tuple[str, ...]
    key: tuple[str, ...]
    count: int
    tally: Tally | None
    cell: Mapping[str, Moments]


def merged(summary: Summary, metrics: Sequence[str]) -> list[Merged]:
    """Return the rows of the table, in the order of the points.

    Rows of a variant become one where a setting changes nothing in it, every value of the setting has its row, and all
    that the table shows of them is the same.
    """
    rows = [
        Merged(key, key, max((moments.count for moments in cell.values()), default=0), summary.tallies.get(key), cell)
        for key, cell in summary.cells.items()
    ]
    for place, axis in enumerate(summary.axes):
        still = summary.answers.inert.get(axis, ())
        levels = len({row.labels[place] for row in rows})
        groups: dict[tuple[str, ...], list[Merged]] = {}
        for row in rows:
            alone = row.labels[-1] not in still or levels < 2
            shared = row.labels if alone else (*row.labels[:place], ANY, *row.labels[place + 1 :])
            groups.setdefault(shared, []).append(row)
        rows = [row for labels, group in groups.items() for row in together(labels, group, levels, metrics)]
    order = {key: place for place, key in enumerate(summary.cells)}
    return sorted(rows, key=lambda row: order[row.key])


def together(labels: tuple[str, ...], group: list[Merged], levels: int, metrics: Sequence[str]) -> list[Merged]:
    """Return the rows of a group as one, or as they are where they differ or one is missing."""
    shown = {numbers(row, metrics) for row in group}
    if len(group) < max(2, levels) or len(shown) > 1:
        return group
    return [replace(group[0], labels=labels, count=sum(row.count for row in group))]


def numbers(row: Merged, metrics: Sequence[str]) -> tuple[str, ...]:
    """Return what the table shows of a row."""
    return (str(row.tally or ""), *(interval(row.cell.get(name)) for name in metrics))


def interval(moments: Moments | None) -> str:
    """Write a mean, and half of its 95 % interval; of few numbers, which say little of one, the least and the most."""
    if moments is None:
        return ""
    if moments.least == moments.most:
        return brief(moments.mean)
    if moments.count < FEW:
        return f"{brief(moments.mean)} ({moments.least:.2g}..{moments.most:.2g})"
    return f"{brief(moments.mean)} ± {moments.half_width:.1g}"
