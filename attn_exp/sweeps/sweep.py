"""Run one sweep, from its command to its results: checks, a preview, and a driver that hands chunks to an engine.

`sweep` turns the arguments into a `Plan`, refuses it if it cannot work (`check_sweep`), and calls `run`; its `Driver`
submits `Job`s to the workers of an engine, collects their lines by chunk, and writes each complete chunk as a part.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from attn_exp import processes, registry
from attn_exp.config.schema import Config, read_config
from attn_exp.config.spelling import Repeat, quoted, spelled
from attn_exp.errors import UserError, printable, refuse, some
from attn_exp.experiment import checks, metrics
from attn_exp.experiment.compare import prepare
from attn_exp.experiment.executing import find_type
from attn_exp.experiment.long_runs import PointProgress
from attn_exp.experiment.metrics.targets import PATTERNS
from attn_exp.problem.problem import build, fill_in_from_model
from attn_exp.processes import format_duration
from attn_exp.report.sweep_plots import refuse_plots
from attn_exp.runs import provenance, trust
from attn_exp.runs.folders import COMPLETE, rebuild_index
from attn_exp.runs.provenance import describe_origin
from attn_exp.runs.store import check_writable
from attn_exp.sweeps import overview, swept
from attn_exp.sweeps.engines import engine
from attn_exp.sweeps.engines.engine import Died, Workers
from attn_exp.sweeps.expand import expand
from attn_exp.sweeps.parts import MOST_POINTS, Lines, Part, Shelf, create_folder, locked, merge_pieces
from attn_exp.sweeps.plan import (
    Job,
    Manifest,
    Plan,
    describe_axis,
    describe_sweep,
    hash_command,
    is_deciding,
    load_manifest,
    make_plan,
    row_columns,
    write_manifest,
)
from attn_exp.sweeps.space import Space
from attn_exp.sweeps.summary import LAYER
from attn_exp.sweeps.swept import Swept
from attn_exp.sweeps.task import CRASHED, Done, as_csv, compute, dtype_of, format_failure

MOST_TRIED = 1024
"""Maximum number of points tried before a sweep is refused."""

MOST_BUILT = 64
"""Maximum number of inputs built twice to see whether they depend on the seed."""

TIMED = 16
"""Maximum number of points that a preview times."""
DONE, SOME_FAILED = 0, 1  # exit codes
RAW = "sweep.skip="  # the beginning of an argument whose value is an expression, which Hydra cannot parse


def check_sweep(plan: Plan, folder: Path, config: Config) -> None:
    """Refuse a sweep if its folder cannot be written, its engine is missing, or all of its points would fail.

    Raises:
        UserError: the sweep cannot run; the message says why.
    """
    engine.choose(config.sweep)
    swept.check_plots(config.figures)
    refuse_plots(config.sweep.plot, [describe_axis(axis) for axis in plan.space.axes])
    if config.sweep.format == "parquet":
        swept.import_arrow()
    if not plan.points:
        raise UserError("no point is left to run: sweep.skip is true for every combination")
    check_writable(folder.parent.parent)
    check_writable(folder)
    check_points(plan)


def list_added_metrics(space: Space) -> tuple[str, ...]:
    """Return the metrics that the sweep adds to the built-in ones, including those of heads.

    Raises:
        UserError: the sweep asks for a check, or for different metrics at different points.
    """
    metric_sets = set()
    for config in map(read_config, space.bases.values()):
        if set(checks.choose_checks(config)) - {"measures", "precision"} or config.check:
            raise UserError("a sweep runs no checks; leave out check=, or run its points one at a time")
        find_type(dtype_of(config))
        metric_sets.add(tuple(metric.name for metric in metrics.choose_metrics(config.metrics)))
    for value in next((axis.values for axis in space.axes if axis.key == "dtype"), ()):
        find_type(value if isinstance(value, str) else spelled(value))
    if len(metric_sets) > 1 or any(axis.key in ("check", "metrics") for axis in space.axes):
        raise UserError("metrics and check apply to the whole sweep and take one value")
    return (*(name for name in metric_sets.pop() if name not in row_columns().values()), *list_head_columns(space))


def list_head_columns(space: Space) -> tuple[str, ...]:
    """Return a column for each pattern of each head if the sweep varies the layer of a model, else no column.

    Raises:
        UserError: the model cannot be read.
    """
    keys = [axis.key for axis in space.axes]
    config = read_config(space.settings(0))
    if LAYER not in keys or "head" in keys or config.model.family is None:
        return ()
    return tuple(f"head_{head}_{name}" for head in range(1, fill_in_from_model(config).head + 1) for name in PATTERNS)


def check_points(plan: Plan) -> None:
    """Refuse a sweep if no point can be computed; of a large sweep, try only some points, spread over all.

    Raises:
        UserError: none of these points can be computed; the message is that of the first one.
    """
    messages = []
    for number in range(0, plan.points, -(-plan.points // MOST_TRIED)):
        try:
            point = read_config(plan.space.settings(plan.kept[number]))
            prepare(point, bind=provenance.find_binder(point))
        except UserError as error:
            messages.append(str(error))
        except Exception:  # a worker will report this in the point's line
            return
        else:
            return
    raise UserError(
        messages[0] + ("; none of the other points tried can be computed either" if len(set(messages)) > 1 else "")
    )


def has_fixed_inputs(space: Space) -> bool:
    """Return whether no input depends on the seed, since all arrays are given or read from a checkpoint.

    False if the sweep varies how arrays are drawn, for example their seed.
    """
    configs = [config for config in space.configs.values() if config.model.family is None]
    drawing = ("seed", "embeddings", "projections", "draws", "generator")
    if len(configs) > MOST_BUILT or any(axis.key.split(".")[0] in drawing and not axis.composed for axis in space.axes):
        return False
    with suppress(Exception):  # a worker will report this in the point's line
        return all(map(is_independent_of_seed, configs))
    return False


def is_independent_of_seed(config: Config) -> bool:
    """Return whether two different seeds give the same input."""
    problems = (build(replace(config, seed=seed)) for seed in (0, 1))
    arrays = ((each.x, each.q, each.k, each.v, each.weights, *each.projections.values()) for each in problems)
    return all(np.array_equal(one, other) for one, other in zip(*arrays, strict=True))


def preview(plan: Plan, folder: Path, config: Config, intact: Mapping[str, Part]) -> str:
    """Describe a sweep before it runs: its axes, points and chunks, how many are done, and the time for the others.

    `intact` holds the intact parts that already exist, by chunk name.
    """
    done = sum(
        len(plan.numbers(chunk)) - intact[name].failed for chunk, name in enumerate(plan.names) if name in intact
    )
    lines = [overview.format_axis(describe_axis(axis)) for axis in plan.space.axes]
    lines.append(f"{plan.points:,} points in {len(plan.names):,} chunks, {done:,} already done")
    if plan.space.size > plan.points:
        lines.append(f"{plan.space.size - plan.points:,} combinations skipped: {config.sweep.skip}")
    if plan.points > done:
        seconds = time_points(plan) / engine.count_workers(engine.choose(config.sweep), config.sweep)
        lines.append(f"about {format_duration(seconds * (plan.points - done))} for the rest")
    return "\n".join([*lines, str(folder)])


def time_points(plan: Plan) -> float:
    """Return the seconds per point, measured on a chunk in the middle of the sweep."""
    compute(plan, Job(0, [0]))  # warm-up
    middle = len(plan.names) // 2
    started = time.perf_counter()
    computed = compute(plan, Job(middle, plan.numbers(middle)[:TIMED])).computed
    return (time.perf_counter() - started) / computed


@dataclass(frozen=True)
class Outcome:
    """The outcome of a sweep: the text for the terminal, the exit code, the folder, and whether results are there."""

    text: str
    code: int
    folder: Path
    kept: bool = True


def sweep(words: Sequence[str], folders: Sequence[str]) -> Outcome:
    """Run the sweep that the arguments of `-m` describe, and return its results as text with the exit code and folder.

    Raises:
        UserError: an argument is invalid, which is reported before anything starts, or the folder is not writable.
    """
    space, first = expand([quote_skip(word) for word in words], folders)
    plan = make_plan(space, first.sweep, list_added_metrics(space))
    folder = Path(first.output_dir) / "sweeps" / (first.sweep.name or hash_command(space, first.sweep, folders))
    check_sweep(plan, folder, first)
    command = Repeat(tuple(words), tuple(folders), many=True, own=registry.files())
    manifest = describe_sweep(plan, first, command) | {"exact": has_fixed_inputs(space)}
    if first.sweep.dry_run:
        return Outcome(preview(plan, folder, first, Swept(folder, manifest).parts), DONE, folder, kept=False)
    with refuse(f"{folder}: the sweep stopped; run the same command again to continue", OSError):
        create_folder(folder)
        with locked(folder):
            return run(plan, folder, first, manifest)


def compute_sweep(words: Sequence[str], folders: Sequence[str]) -> Swept:
    """Run the sweep that the arguments of `-m` describe, and return its results.

    Raises:
        UserError: as for `sweep`, or the sweep is a dry run, which has no results.
    """
    outcome = sweep(words, folders)
    if not outcome.kept:
        raise UserError("sweep.dry_run=true computes nothing; python -m attn_exp -m prints its plan")
    return swept.load(outcome.folder)


def run(plan: Plan, folder: Path, config: Config, manifest: dict[str, Any]) -> Outcome:
    """Compute the missing points, then write the table and report of all results, even if the sweep is interrupted.

    If no point is missing, the recorded duration of the sweep stays the same.

    Raises:
        UserError: the folder holds another sweep that shares no point with this one.
    """
    earlier, shelf = dict[str, Any](), Swept(folder, manifest).shelf
    with suppress(UserError):  # no manifest, or one that cannot be read
        earlier = load_manifest(folder)
    is_same = earlier.get("parts") == manifest["parts"]
    intact, damaged = shelf.find(plan.names)
    with trust.refuse_damaged(f"{folder}: {swept.UNREADABLE}", ValueError):
        shared = shelf.find_shared(plan, intact)
    if earlier and not (is_same or shared) and is_another(earlier, manifest, plan):
        raise UserError(
            f"{folder} holds another sweep: {earlier['command']}; choose another sweep.name, or remove that folder"
        )
    if damaged:
        print(f"attn_exp: recomputing damaged parts: {printable(some(damaged))}", file=sys.stderr)
    driver = Driver(plan, shelf, PointProgress(points=plan.points), intact, shared)
    jobs = list(driver.jobs())
    workers = engine.start(plan, config.sweep, len(jobs)) if jobs else None
    manifest |= describe_origin()
    write_manifest(folder, manifest)
    spent = float(earlier.get("seconds", 0.0)) if is_same else 0.0
    status, code, started = swept.PARTIAL, None, time.monotonic()
    try:
        if workers is None or driver.run(workers, deque(jobs)):
            status = COMPLETE
    except KeyboardInterrupt as stopped:
        status, code = "interrupted", processes.exit_code(stopped)
    finally:
        driver.progress.show(last=True)
        seconds = spent if workers is None and spent else spent + time.monotonic() - started
        manifest |= {"status": status, "seconds": seconds}
        with trust.refuse_damaged(f"{folder}: {swept.UNREADABLE}", ValueError):
            text, disagreeing = swept.write_results(folder, manifest, driver.parts)
        with suppress(UserError):  # the results are saved; `attn-exp index` reports the problem
            rebuild_index(Path(config.output_dir))
    return Outcome(text, driver.exit_code(config, disagreeing) if code is None else code, folder)


def is_another(earlier: Manifest, manifest: Manifest, plan: Plan) -> bool:
    """Return whether the folder of a new sweep holds a different sweep; the caller has found no point that they share.

    Different sweeps differ in settings that affect rows. The result is False if finding no shared point proves nothing:
    once the program has changed, no point is shared, and in a large sweep, only some points are looked for.
    """
    words, other_words = (
        [word for word in sorted(sweep["words"]) if is_deciding(word)] for sweep in (earlier, manifest)
    )
    return words != other_words and earlier["version"] == manifest["version"] and plan.points <= MOST_POINTS


def quote_skip(word: str) -> str:
    """Quote the expression of `sweep.skip`, since Hydra's grammar cannot parse it."""
    is_raw = word.startswith(RAW) and word[len(RAW) :][:1] not in ("'", '"')
    return RAW + quoted(word[len(RAW) :]) if is_raw else word


@dataclass
class Chunk:
    """A chunk in progress: its lines so far, and how many of its points are missing or failed."""

    pieces: list[bytes]
    missing: int
    failed: int = 0


@dataclass
class Driver:
    """The driver of a sweep.

    - `shelf`, `parts`: the folder of the parts, and the complete parts so far, by chunk name.
    - `shared`: the lines of points that other sweeps in the folder computed, by point number.
    - `open_chunks`: the chunks in progress, by index.
    """

    plan: Plan
    shelf: Shelf
    progress: PointProgress
    parts: dict[str, Part]
    shared: Mapping[int, Lines] = field(default_factory=dict)
    open_chunks: dict[int, Chunk] = field(default_factory=dict)

    def exit_code(self, config: Config, disagreeing: int) -> int:
        """Return 1 if points failed, or if `strict` is set and a point disagrees with a published result."""
        is_failed = any(part.failed for part in self.parts.values())
        return SOME_FAILED if is_failed or (config.strict and disagreeing) else DONE

    def jobs(self) -> Iterator[Job]:
        """Yield the remaining jobs. Count the points that exist already, and write the chunks that these complete."""
        for chunk, name in enumerate(self.plan.names):
            part, numbers = self.parts.get(name), self.plan.numbers(chunk)
            if part is not None and not part.failed:
                self.progress.cached += len(numbers)
                continue
            existing = {number: self.shared[number] for number in numbers if number in self.shared}
            self.progress.cached += len(existing)
            missing = [number for number in numbers if number not in existing]
            pieces = [as_csv([line for lines in existing.values() for line in lines])] if existing else []
            self.open_chunks[chunk] = Chunk(pieces, len(missing))
            if missing:
                yield Job(chunk, missing)
            else:
                self.write(chunk)

    def run(self, workers: Workers, todo: deque[Job]) -> bool:
        """Compute and write what is missing or failed; return whether every point has a result now.

        With `fail_fast`, stop at the first failure.
        """
        under_way = 0
        try:
            while todo or under_way:
                while todo and under_way < workers.capacity:
                    workers.submit(todo.popleft())
                    under_way += 1
                for ended in workers.finished(0.25):
                    under_way -= 1
                    if isinstance(ended, Died):
                        todo.extendleft(self.replace_job(ended))
                    else:
                        self.take(ended)
                        if ended.failed and self.plan.fail_fast:
                            return not self.open_chunks
                self.progress.show()
        finally:
            workers.close()
        return not self.open_chunks

    def take(self, done: Done) -> None:
        """Add the lines of a job to its chunk, and write the chunk if it is complete."""
        chunk = self.open_chunks[done.job.chunk]
        chunk.pieces.append(done.lines)
        chunk.missing -= done.computed
        chunk.failed += done.failed
        self.progress.add(done.computed, done.failed)
        if chunk.missing == 0 or (self.plan.fail_fast and done.failed):
            self.write(done.job.chunk)

    def write(self, index: int) -> None:
        """Write a chunk as a part; the chunk stays open while points are missing, as after `fail_fast`."""
        chunk, name = self.open_chunks[index], self.plan.names[index]
        lines = chunk.pieces[0] if len(chunk.pieces) == 1 else merge_pieces(chunk.pieces)
        self.parts[name] = self.shelf.write(name, lines, chunk.failed)
        if chunk.missing == 0:
            del self.open_chunks[index]

    def replace_job(self, died: Died) -> list[Job]:
        """Return the jobs that replace a job whose worker died: one retry for each of its points.

        If the worker of such a retry dies too, its point is recorded as crashed, and nothing replaces it.
        """
        job = died.job
        if not job.is_retry:
            return [Job(job.chunk, [number], is_retry=True) for number in job.numbers]
        line = format_failure(self.plan, job.numbers[0], CRASHED, f"{died.reason}, twice")
        self.take(Done(job, as_csv([line]), 1, 1))
        return []
