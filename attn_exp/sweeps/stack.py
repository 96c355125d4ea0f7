"""Points of a job that differ in their seed alone, computed as one, to the very lines that each gets alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields

from attn_exp.config.schema import Config
from attn_exp.experiment.row import Row
from attn_exp.experiment.stack import Rows, tabulated
from attn_exp.runs.records import cell
from attn_exp.sweeps.plan import Plan, seed_stride

Line = Sequence[str]


def groups(plan: Plan, numbers: Sequence[int]) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield the axis of the seeds, and the points and seeds of each group that differs in these alone.

    Points whose seeds are no plain whole numbers, or vary with another setting, stand in none.
    """
    space, stride = plan.space, seed_stride(plan.space)
    place = next((place for place, axis in enumerate(space.axes) if axis.key == "seed" and not axis.composed), None)
    if not stride or place is None:
        return
    seeds = space.axes[place].values
    members: dict[int, list[tuple[int, int]]] = {}
    for number in numbers:
        which = plan.kept[number] // stride % len(seeds)
        members.setdefault(plan.kept[number] - which * stride, []).append((number, seeds[which]))
    for group in members.values():
        points, drawn = map(list, zip(*group, strict=True))
        if len(points) > 1 and all(type(seed) is int and seed >= 0 for seed in drawn):
            yield place, points, drawn


def lines(
    plan: Plan, numbers: Sequence[int], config_of: Callable[[int], Config], start: Callable[[int], list[str]]
) -> dict[int, list[Line]]:
    """Return the lines of the points that go together, by their numbers; of any others, and of errors, none.

    `start` returns the first cells of a point's lines: its number, the values of the axes, and more that all share.
    """
    ready: dict[int, list[Line]] = {}
    for axis, points, seeds in groups(plan, numbers):
        try:
            stacks = tabulated(config_of(points[0]), seeds)
        except Exception:  # each is computed alone, and says itself what is wrong with it
            continue
        for rows, (some, whose) in zip(stacks, cut(stacks, points, seeds), strict=True):
            ready |= zip(some, with_start(rows, start(some[0]), axis, some, whose), strict=True)
    return ready


def cut(stacks: Sequence[Sequence[Rows]], points: list[int], seeds: list[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the points and seeds of each stack."""
    first = 0
    for variants in stacks:
        last = first + variants[0].points
        yield points[first:last], seeds[first:last]
        first = last


def with_start(
    variants: Sequence[Rows], start: Sequence[str], axis: int, points: list[int], seeds: list[int]
) -> Iterator[list[Line]]:
    """Yield the lines of each point; `start` are the first cells of the first point's."""
    common = [list(map(str, points)), *([text] * len(points) for text in start[1:])]
    common[1 + axis] = list(map(str, seeds))
    for of_point in zip(*(zip(*common, *written(rows), strict=True) for rows in variants), strict=True):
        yield list(of_point)


def written(rows: Rows) -> Iterator[Sequence[str]]:
    """Yield the cells of each column of a variant's rows."""
    for name in [field.name for field in fields(Row)]:
        column = rows.columns.get(name)
        if column is None:
            yield [cell(getattr(rows.shared, name))] * rows.points
        else:
            yield list(map(repr if isinstance(column[0], float) else cell, column))
