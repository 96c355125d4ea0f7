"""Before a sweep makes a folder: what is refused, and for `sweep.dry_run` what it would do."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path

from attn_exp.config.schema import Config, read_config
from attn_exp.config.spelling import key_of, spelled
from attn_exp.errors import UserError
from attn_exp.experiment import checks, metrics, number_types, patterns
from attn_exp.experiment.compare import prepared
from attn_exp.patience import spoken_time
from attn_exp.problem.left_to_model import ask_model
from attn_exp.report.sweep.plotted import refuse_plots
from attn_exp.runs import recorded_code
from attn_exp.runs.rendering import check_figures
from attn_exp.runs.store import check_writable
from attn_exp.sweeps import manifest, parquet
from attn_exp.sweeps.answers.totals import LAYER, head_column
from attn_exp.sweeps.engines import engine
from attn_exp.sweeps.plan import Job, Plan
from attn_exp.sweeps.space import Axis, Space
from attn_exp.sweeps.task import compute, dtype_of, row_columns

FEW, MOST_TRIED = 16, 256
"""Axes of up to so many values are tried with each of them, others with three, if that makes no more points."""

SHOWN = 6
"""Axes of more values show the first and the last."""

MOST_TIMED, PATIENCE = 256, 2.0
"""Points of a chunk that are timed, and the seconds that this may take."""


def check_sweep(plan: Plan, folder: Path, config: Config) -> None:
    """Refuse a sweep that cannot be written, whose engine is missing, or of which every point would fail.

    Raises:
        UserError: what is in the way.
    """
    engine.chosen(config.sweep)
    if config.figures.font is not None:
        check_figures(replace(config.figures, only=()))
    refuse_plots(config.sweep.plot, [manifest.described_axis(axis) for axis in plan.space.axes])
    if config.sweep.format == "parquet":
        parquet.library()
    if not plan.points:
        raise UserError("no point is left to run: sweep.skip holds for every combination")
    check_writable(folder.parent.parent)
    check_writable(folder)
    check_points(plan)


def added_metrics(space: Space) -> tuple[str, ...]:
    """Return the metrics that the sweep adds to a row's own, and those of heads; checks make tables of their own.

    Raises:
        UserError: another check, or metrics that are not the same everywhere.
    """
    asked = set()
    for config in map(read_config, space.bases.values()):
        if set(checks.wanted(config)) - {"measures", "precision"} or config.check:
            raise UserError("a sweep runs no check; run them one at a time, or add hydra/sweeper=basic")
        number_types.kind(dtype_of(config))
        asked.add(tuple(metric.name for metric in metrics.chosen(config.metrics)))
    typed = [word.partition("=")[2] for word in space.fixed if key_of(word) == "dtype" and "$" not in word]
    for value in next((axis.values for axis in space.axes if axis.key == "dtype"), typed):
        number_types.kind(value if isinstance(value, str) else spelled(value))
    if len(asked) > 1 or any(axis.key in ("check", "metrics") for axis in space.axes):
        raise UserError("metrics and check belong to the whole sweep and take one value")
    return (*(name for name in asked.pop() if name not in row_columns()), *head_columns(space))


def head_columns(space: Space) -> tuple[str, ...]:
    """Return a column for each pattern of each head, where a sweep goes over the layers of a model; else none.

    A model that cannot be read has none: its points say why.
    """
    keys = [axis.key for axis in space.axes]
    config = read_config(space.settings(0))
    if LAYER not in keys or "head" in keys or config.model.family is None:
        return ()
    try:
        heads = ask_model(config).head
    except UserError:
        return ()
    return tuple(head_column(head, name) for head in range(1, heads + 1) for name in patterns.NAMES)


def check_points(plan: Plan) -> None:
    """Refuse a sweep of which no point can be computed, as far as a few points that stand for all of them tell.

    Raises:
        UserError: what is wrong with the first.
    """
    messages: dict[tuple[int, ...], set[str]] = {}
    for alike, number in trial_points(plan):
        try:
            point = read_config(plan.space.settings(plan.kept[number]))
            prepared(point, bind=recorded_code.binder(point))
        except UserError as error:
            messages.setdefault(alike, set()).add(str(error))
        except Exception:  # a worker will say it, in the point's own line
            return
        else:
            return
    if messages and all(len(said) == 1 for said in messages.values()):
        first = next(iter(messages.values())).pop()
        raise UserError(first if len(messages) == 1 else f"{first}; and no other point of the sweep is any better")


def trial_points(plan: Plan) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield the numbers of points that stand for all, each with the values on short axes that it shares with others.

    Short axes are tried with every value and long ones with three, so that points which differ along a long axis alone
    and fail with the same words are taken to fail for another reason than the value there.
    """
    lengths = plan.space.lengths
    tried = [list(range(length) if length <= FEW else (0, length // 2, length - 1)) for length in lengths]
    while prod(map(len, tried)) > MOST_TRIED:
        longest = max(range(len(tried)), key=lambda place: len(tried[place]))
        tried[longest] = tried[longest][:: len(tried[longest]) - 1]
    short = [place for place, places in enumerate(tried) if len(places) == lengths[place]]
    for places in product(*tried):
        number = plan.number(plan.space.index_of(places))
        if number is not None:
            yield tuple(places[place] for place in short), number


def preview(plan: Plan, folder: Path, config: Config, failed: Collection[int], missing: Collection[int]) -> str:
    """Return the axes, how many points and chunks there are, what is done already, and about how long the rest takes.

    `missing` are the chunks that have no part yet; `failed` counts the points that failed in each of the others.
    """
    done = plan.points - sum(len(plan.numbers(chunk)) for chunk in missing) - sum(failed)
    lines = [f"{axis.key}: {len(axis.values):,} values ({values_shown(axis)})" for axis in plan.space.axes]
    lines.append(f"{plan.points:,} points in {plan.chunks:,} chunks, {done:,} done already")
    if plan.space.size > plan.points:
        lines.append(f"{plan.space.size - plan.points:,} combinations left out: {config.sweep.skip}")
    if plan.points > done:
        lines.append(f"about {spoken_time(seconds_of_a_point(plan, config) * (plan.points - done))} for the rest")
    return "\n".join([*lines, str(folder)])


def values_shown(axis: Axis) -> str:
    """Return the values of an axis as they are typed; of many, the first and the last."""
    count = len(axis.values)
    words = [axis.value_word(place) for place in range(min(SHOWN, count))]
    return ", ".join(words if count <= SHOWN else [*words[:-1], "...", axis.value_word(count - 1)])


def seconds_of_a_point(plan: Plan, config: Config) -> float:
    """Return the seconds a point takes, from points all over the sweep, shared by the workers.

    Points that a chunk computes together cost less than alone: as many of some chunks are timed as will not take long.
    """
    sample = sorted({round(place) for place in (0, (plan.points - 1) / 2, plan.points - 1)})
    compute(plan, Job(0, sample[:1]))
    seconds = timed_jobs(plan, [[number] for number in sample])
    count = min(MOST_TIMED, int(PATIENCE / len(sample) / seconds)) if seconds else MOST_TIMED
    if count > 1:
        chunks = {place // plan.chunk for place in sample}
        seconds = timed_jobs(plan, [plan.numbers(chunk)[:count] for chunk in sorted(chunks)])
    return seconds / engine.workers(engine.chosen(config.sweep), config.sweep)


def timed_jobs(plan: Plan, jobs: Sequence[Sequence[int]]) -> float:
    """Return the seconds that a point of these jobs takes."""
    started = time.perf_counter()
    for numbers in jobs:
        compute(plan, Job(0, numbers))
    return (time.perf_counter() - started) / sum(map(len, jobs))
