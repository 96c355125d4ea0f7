"""Checks before a sweep creates a folder, and the preview of `sweep.dry_run`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from attn_exp.config.schema import Config, read_config
from attn_exp.config.spelling import key_of, spelled
from attn_exp.errors import UserError
from attn_exp.experiment import checks, metrics
from attn_exp.experiment.checks.heads import PATTERNS
from attn_exp.experiment.compare import prepared
from attn_exp.experiment.executing import find_type
from attn_exp.problem.left_to_model import ask_model
from attn_exp.problem.problem import build
from attn_exp.processes import format_duration
from attn_exp.report.sweep_plots import refuse_plots
from attn_exp.runs import provenance
from attn_exp.runs.store import check_writable
from attn_exp.sweeps import collect, manifest, overview
from attn_exp.sweeps.engines import engine
from attn_exp.sweeps.parts import Part
from attn_exp.sweeps.plan import Job, Plan
from attn_exp.sweeps.space import Space
from attn_exp.sweeps.summary import LAYER, head_column
from attn_exp.sweeps.task import compute, dtype_of, row_columns

MOST_TRIED = 1024
"""Points tried before a sweep is refused."""

MOST_BUILT = 64
"""Maximum number of inputs built twice to see whether a seed changes them."""

COUNTS, PATIENCE = (1, 16, 256), 0.2
"""Points of a chunk to time; the next count is tried if the last took fewer seconds than `PATIENCE`."""


def check_sweep(plan: Plan, folder: Path, config: Config) -> None:
    """Refuse a sweep that cannot be written, whose engine is missing, or of which every point would fail.

    Raises:
        UserError: the reason.
    """
    engine.chosen(config.sweep)
    collect.check_plots(config.figures)
    refuse_plots(config.sweep.plot, [manifest.describe_axis(axis) for axis in plan.space.axes])
    if config.sweep.format == "parquet":
        collect.import_arrow()
    if not plan.points:
        raise UserError("no point is left to run: sweep.skip holds for every combination")
    check_writable(folder.parent.parent)
    check_writable(folder)
    check_points(plan)


def added_metrics(space: Space) -> tuple[str, ...]:
    """Return the metrics that the sweep adds to the built-in ones, including those of heads; checks are refused.

    Raises:
        UserError: another check, or metrics that are not the same everywhere.
    """
    asked = set()
    for config in map(read_config, space.bases.values()):
        if set(checks.wanted(config)) - {"measures", "precision"} or config.check:
            raise UserError("a sweep runs no check; run them one at a time")
        find_type(dtype_of(config))
        asked.add(tuple(metric.name for metric in metrics.chosen(config.metrics)))
    typed = [word.partition("=")[2] for word in space.fixed if key_of(word) == "dtype" and "$" not in word]
    for value in next((axis.values for axis in space.axes if axis.key == "dtype"), typed):
        find_type(value if isinstance(value, str) else spelled(value))
    if len(asked) > 1 or any(axis.key in ("check", "metrics") for axis in space.axes):
        raise UserError("metrics and check belong to the whole sweep and take one value")
    return (*(name for name in asked.pop() if name not in row_columns()), *head_columns(space))


def head_columns(space: Space) -> tuple[str, ...]:
    """Return a column for each pattern of each head if a sweep covers the layers of a model; else none.

    A model that cannot be read has none: its points report why.
    """
    keys = [axis.key for axis in space.axes]
    config = read_config(space.settings(0))
    if LAYER not in keys or "head" in keys or config.model.family is None:
        return ()
    try:
        heads = ask_model(config).head
    except UserError:
        return ()
    return tuple(head_column(head, name) for head in range(1, heads + 1) for name in PATTERNS)


def check_points(plan: Plan) -> None:
    """Refuse a sweep if no point can be computed, judging by points from all over it.

    Raises:
        UserError: the error of the first point.
    """
    messages = []
    for number in range(0, plan.points, -(-plan.points // MOST_TRIED)):
        try:
            point = read_config(plan.space.settings(plan.kept[number]))
            prepared(point, bind=provenance.binder(point))
        except UserError as error:
            messages.append(str(error))
        except Exception:  # a worker will report it in the point's line
            return
        else:
            return
    raise UserError(messages[0] + "; no other point of the sweep can be computed either" * (len(set(messages)) > 1))


def draws_nothing(space: Space) -> bool:
    """Return whether no seed changes an input of a sweep of one seed: all are given, or come from a checkpoint."""
    configs = [config for config in space.configs.values() if config.model.family is None]
    drawing = ("seed", "embeddings", "projections", "draws", "generator")
    if len(configs) > MOST_BUILT or any(axis.key.split(".")[0] in drawing and not axis.composed for axis in space.axes):
        return False
    with suppress(Exception):  # a worker will report it in the point's line
        return all(map(is_given, configs))
    return False


def is_given(config: Config) -> bool:
    problems = (build(replace(config, seed=seed)) for seed in (0, 1))
    arrays = ((each.x, each.q, each.k, each.v, each.weights, *each.projections.values()) for each in problems)
    return all(np.array_equal(one, other) for one, other in zip(*arrays, strict=True))


def preview(plan: Plan, folder: Path, config: Config, whole: Mapping[str, Part]) -> str:
    """Return the axes, the number of points and chunks, how much is done, and the estimated time for the rest.

    `whole` are the existing parts, by chunk name.
    """
    done = sum(len(plan.numbers(chunk)) - whole[name].failed for chunk, name in enumerate(plan.names) if name in whole)
    lines = [overview.axis_told(manifest.describe_axis(axis)) for axis in plan.space.axes]
    lines.append(f"{plan.points:,} points in {len(plan.names):,} chunks, {done:,} done already")
    if plan.space.size > plan.points:
        lines.append(f"{plan.space.size - plan.points:,} combinations left out: {config.sweep.skip}")
    if plan.points > done:
        seconds = time_points(plan) / engine.workers(engine.chosen(config.sweep), config.sweep)
        lines.append(f"about {format_duration(seconds * (plan.points - done))} for the rest")
    return "\n".join([*lines, str(folder)])


def time_points(plan: Plan) -> float:
    """Return the seconds per point, timing chunks from all over the sweep.

    Points that a chunk computes together cost less than alone, so as many are timed as take little time.
    """
    compute(plan, Job(0, [0]))  # warm-up
    chunks, seconds, computed = sorted({0, len(plan.names) // 2, len(plan.names) - 1}), 0.0, 1
    for count in COUNTS:
        if seconds < PATIENCE:
            started = time.perf_counter()
            computed = sum(compute(plan, Job(chunk, plan.numbers(chunk)[:count])).computed for chunk in chunks)
            seconds = time.perf_counter() - started
    return seconds / computed
