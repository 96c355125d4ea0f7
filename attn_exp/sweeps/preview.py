"""What a sweep would do, for `sweep.dry_run`."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path

from attn_exp.config.schema import Config
from attn_exp.sweeps.engines import engine
from attn_exp.sweeps.meter import span
from attn_exp.sweeps.plan import Job, Plan
from attn_exp.sweeps.space import Axis
from attn_exp.sweeps.task import compute

SHOWN = 6
"""Axes of more values show the first and the last."""

MOST_TIMED, PATIENCE = 256, 2.0
"""Points of a chunk that are timed, and the seconds that this may take."""


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
        lines.append(f"about {span(estimate(plan, config) * (plan.points - done))} for the rest")
    return "\n".join([*lines, str(folder)])


def values_shown(axis: Axis) -> str:
    """Return the values of an axis as they are typed; of many, the first and the last."""
    count = len(axis.values)
    words = [axis.value_word(place) for place in range(min(SHOWN, count))]
    return ", ".join(words if count <= SHOWN else [*words[:-1], "...", axis.value_word(count - 1)])


def estimate(plan: Plan, config: Config) -> float:
    """Return the seconds a point takes, from points all over the sweep, shared by the workers.

    Points that a chunk computes together cost less than alone: as many of some chunks are timed as will not take long.
    """
    sample = sorted({round(place) for place in (0, (plan.points - 1) / 2, plan.points - 1)})
    compute(plan, Job(0, sample[:1]))
    seconds = timed(plan, [[number] for number in sample])
    count = min(MOST_TIMED, int(PATIENCE / len(sample) / seconds)) if seconds else MOST_TIMED
    if count > 1:
        chunks = {place // plan.chunk for place in sample}
        seconds = timed(plan, [plan.numbers(chunk)[:count] for chunk in sorted(chunks)])
    return seconds / engine.workers(engine.chosen(config.sweep), config.sweep)


def timed(plan: Plan, jobs: Sequence[Sequence[int]]) -> float:
    """Return the seconds that a point of these jobs takes."""
    started = time.perf_counter()
    for numbers in jobs:
        compute(plan, Job(0, numbers))
    return (time.perf_counter() - started) / sum(map(len, jobs))
