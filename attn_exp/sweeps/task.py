"""The code that workers run: a pure function from points to lines of CSV."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from attn_exp import plugins, registry
from attn_exp.config.schema import Config, read_settings
from attn_exp.config.spelling import bare
from attn_exp.errors import UserError, first_line
from attn_exp.experiment.checks import measures
from attn_exp.experiment.compare import Rows, tabulate, tabulate_seeds
from attn_exp.experiment.metrics.targets import measure_patterns
from attn_exp.experiment.row import Comparison
from attn_exp.problem.problem import Pass
from attn_exp.runs import provenance, records
from attn_exp.runs.records import format_cell
from attn_exp.sweeps.plan import Job, Plan, row_columns, task_version
from attn_exp.sweeps.rows import OK
from attn_exp.sweeps.summary import head_and_pattern

Line = Sequence[str]  # the cells of one line of CSV
# values of the column `status` for a point that raised an error, and for one whose worker died twice
FAILED, CRASHED = "failed", "crashed"
LONGEST = 300
"""Maximum length of an error message in the table."""


@dataclass(frozen=True)
class Done:
    """The result of a job: its lines of CSV without a header, and how many of its points were computed and failed."""

    job: Job
    lines: bytes
    computed: int
    failed: int


def compute(plan: Plan, job: Job) -> Done:
    """Compute the points of a job; the line of a point that fails contains its error message."""
    lines, failed, count = list[Line](), 0, 0
    # a worker forked from the driver has registered the plugins already
    is_registered = all(origin in registry.origins() for origin in plan.own)
    with nullcontext() if is_registered else plugins.reload_members(plan.own):
        batched = compute_stacks(plan, job)
        under_way = Pass()  # points that differ only in a model's layer share one forward pass
        for number in job.numbers:
            count += 1
            try:
                lines += batched[number] if number in batched else compute_point(plan, number, under_way)
            except Exception as error:
                failed += 1
                lines.append(format_failure(plan, number, FAILED, format_error(error)))
                if plan.fail_fast:
                    break
    return Done(job, as_csv(lines), count, failed)


def compute_point(plan: Plan, number: int, under_way: Pass) -> list[Line]:
    config = config_of(plan, number)
    with chdir(os.curdir):  # user code may change the working directory, on which our relative paths depend
        comparison = tabulate(config, under_way=under_way, bind=provenance.find_binder(config), dtype=dtype_of(config))
    return list(format_lines(plan, number, comparison))


def compute_stacks(plan: Plan, job: Job) -> dict[int, list[Line]]:
    """Compute points that differ only in their seed as one batch, and return their lines by point number.

    The result is empty if the sweep has additional metrics, published results or `fail_fast`. If a batch fails, its
    points are not in the result: they are computed alone later, and each reports its own error.
    """
    lines_of: dict[int, list[Line]] = {}
    has_published = any(base.get("published") for base in plan.space.bases.values())
    if plan.metrics or plan.fail_fast or has_published:
        return lines_of
    for points, seeds in group_seeds(plan, job.numbers):
        try:
            stacks = tabulate_seeds(config_of(plan, points[0]), seeds)
        except Exception:  # a point fails; `compute` then computes each of them alone
            continue
        start = 0
        for variants in stacks:  # a large batch comes in several stacks
            batch = slice(start, start + variants[0].points)
            lines_of |= zip(points[batch], format_stack(plan, variants, points[batch], seeds[batch]), strict=True)
            start = batch.stop
    return lines_of


def group_seeds(plan: Plan, numbers: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the points and seeds of each group of points that differ only in the seed, if all seeds are integers."""
    groups: dict[int, list[tuple[int, int]]] = {}
    if plan.space.seeds is not None:
        axis, stride = plan.space.seeds
        for number in numbers:
            index = plan.kept[number]
            seed_index = plan.space.indices(index)[axis]
            first_index = index - seed_index * stride  # of the point with the first seed and the same other settings
            groups.setdefault(first_index, []).append((number, plan.space.axes[axis].values[seed_index]))
    for group in groups.values():
        points, seeds = map(list, zip(*group, strict=True))
        if len(points) > 1 and all(type(seed) is int and seed >= 0 for seed in seeds):
            yield points, seeds


def format_stack(plan: Plan, variants: Sequence[Rows], points: list[int], seeds: list[int]) -> Iterator[list[Line]]:
    """Yield the lines of each point, one per variant, for points that differ only in their seed."""
    seed_axis, _ = plan.space.seeds or (0, 0)
    shared = [[cell] * len(points) for cell in (*format_settings(plan, points[0]), OK, "", "")]
    number_column, seed_column = 0, 1 + seed_axis  # as in `format_settings`
    shared[number_column], shared[seed_column] = list(map(str, points)), list(map(str, seeds))
    keys = list(map(plan.key, points))
    for lines in zip(*(zip(*shared, *format_columns(rows), keys, strict=True) for rows in variants), strict=True):
        yield list(lines)


def format_columns(rows: Rows) -> Iterator[Sequence[str]]:
    for name in row_columns():
        column = rows.columns.get(name)
        if column is None:
            yield [format_cell(getattr(rows.shared, name))] * rows.points
        else:
            yield list(map(repr if isinstance(column[0], float) else format_cell, column))


def dtype_of(config: Config) -> str:
    """Return the dtype that a point is computed in.

    Raises:
        UserError: the settings list several, and a point has only one.
    """
    if len(config.dtype) > 1:
        types = ",".join(config.dtype)
        raise UserError(f"dtype=[{types}]: a point of a sweep has one dtype; write dtype={types} to sweep over them")
    return next(iter(config.dtype), "float64")


def config_of(plan: Plan, number: int) -> Config:
    space, index = plan.space, plan.kept[number]
    settings = space.settings(index)
    swept = {axis.key.split(".")[0] for axis in space.axes if not axis.composed}
    base = space.configs[space.base_key(space.indices(index))]
    return replace(base, **read_settings({key: settings[key] for key in swept}))


def elsewhere(plan: Plan, job: Job) -> Done:
    """Compute a job in a process that may run on another machine, with one BLAS thread.

    Raises:
        UserError: this process and the driver run different versions of the program, so numbers could differ.
    """
    if task_version() != plan.version:
        where = f"{socket.gethostname()}, {Path(__file__).parent.parent}"
        raise UserError(f"a worker ({where}) has a different version of attn_exp or NumPy; install the driver's")
    with threadpool_limits(1):
        return compute(plan, job)


def format_lines(plan: Plan, number: int, comparison: Comparison) -> Iterator[list[str]]:
    """Yield a line for each variant of a point; the column `agree` counts published results that agree: `6 of 6`."""
    agreeing = sum(figure.agrees for figure in comparison.published)
    printed = len(comparison.published)
    start = [*format_settings(plan, number), OK, "", f"{agreeing} of {printed}" if printed else ""]
    more = compute_added_metrics(plan, comparison) if plan.metrics else {}
    key = plan.key(number)
    for row in comparison.rows:
        numbers = (format_cell(more.get((row.variant, name), math.nan)) for name in plan.metrics)
        yield [*start, *(format_cell(getattr(row, name)) for name in row_columns()), *numbers, key]


def compute_added_metrics(plan: Plan, comparison: Comparison) -> dict[tuple[str, str], float]:
    head_columns = {name: head_and_name for name in plan.metrics if (head_and_name := head_and_pattern(name))}
    numbers = measure_heads(comparison, head_columns) if head_columns else {}
    if len(head_columns) < len(plan.metrics):
        computed = [variant for variant in comparison.variants if not variant.refused]
        measured = measures.examine(comparison.config, comparison.problem, computed)
        numbers |= {(record.variant, record.metric): record.value for record in measured}
    return numbers


def measure_heads(comparison: Comparison, columns: Mapping[str, tuple[int, str]]) -> dict[tuple[str, str], float]:
    problem, numbers = comparison.problem, dict[tuple[str, str], float]()
    for variant in comparison.variants:
        weights = comparison.traces[variant.name].weights
        if weights is not None:
            offset, is_cross_attention = int(variant.rules.offset), problem.memory is not None
            shares = measure_patterns(weights, problem.key_tokens, offset, is_cross_attention)
            for name, (head, pattern) in columns.items():
                if head <= len(weights):
                    numbers[variant.name, name] = float(shares[pattern][head - 1])
    return numbers


def format_failure(plan: Plan, number: int, status: str, message: str) -> list[str]:
    empty = [""] * (1 + len(row_columns()) + len(plan.metrics))
    return [*format_settings(plan, number), status, format_cell(message), *empty, plan.key(number)]


def format_settings(plan: Plan, number: int) -> list[str]:
    """Return the first cells of a point's lines: its number, and its value on each axis."""
    values = plan.space.values(plan.kept[number])
    return [
        str(number),
        *(format_cell(value if isinstance(value, bool | int | float) else bare(value)) for value in values),
    ]


def format_error(error: Exception) -> str:
    text = first_line(error) if isinstance(error, UserError) else f"{type(error).__name__}: {first_line(error)}"
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def as_csv(lines: Sequence[Sequence[str]]) -> bytes:
    return records.as_csv(lines).encode("utf-8", "backslashreplace")
