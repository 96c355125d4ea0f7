"""One sweep from its command to its results."""

from __future__ import annotations

import errno
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from attn_exp.config.read import read
from attn_exp.config.repeat import Repeat
from attn_exp.config.schema import Config
from attn_exp.errors import UserError
from attn_exp.experiment import checks, metrics
from attn_exp.runs import index
from attn_exp.runs.provenance import Git, ask_git, origin
from attn_exp.runs.store import USER_ERRORS, check_writable
from attn_exp.sweep import collect, lock, manifest, parquet, parts
from attn_exp.sweep.driver import Driver
from attn_exp.sweep.engines import engine
from attn_exp.sweep.expand import expand
from attn_exp.sweep.meter import Progress, span
from attn_exp.sweep.plan import Job, Plan, identity, make_plan
from attn_exp.sweep.space import Axis, Space
from attn_exp.sweep.task import compute, row_columns
from attn_exp.sweep.words import quoted

DONE, SOME_FAILED, INTERRUPTED = 0, 1, 130
RAW = "sweep.skip="


def sweep(words: Sequence[str], folders: Sequence[str]) -> int:
    """Run the sweep that the words of `-m` describe; print its results and return the exit code.

    Raises:
        UserError: a mistake in the words, found before anything starts, or a folder that cannot be written to.
    """
    space, first = expand([skip_quoted(word) for word in words], folders)
    if first.strict:
        raise UserError("published.strict=true is for one run; of a sweep, the column agree says it for each point")
    plan = make_plan(space, first.sweep, more_metrics(space))
    folder = Path(first.output_dir) / "sweeps" / (first.sweep.name or identity(space, first.sweep, folders))
    if first.sweep.dry_run:
        print(preview(plan, folder, first))
        return DONE
    check_writable(folder)
    if first.sweep.format == "parquet":
        parquet.check()
    command = Repeat(tuple(words), tuple(folders), many=True)
    try:
        (folder / "parts").mkdir(parents=True, exist_ok=True)
        with lock.held(folder), interruptible(), ask_git() as git:
            return run(plan, folder, first, manifest.described(plan, first, command), git)
    except OSError as error:
        if error.errno not in (*USER_ERRORS, errno.EFBIG):
            raise
        hint = "what is done is kept: make room and run the same command again"
        print(f"attn_exp: error: {folder}: cannot be written to ({error.strerror}); {hint}", file=sys.stderr)
        return SOME_FAILED


def more_metrics(space: Space) -> tuple[str, ...]:
    """Return the metrics that the sweep adds to a row's own; other checks make tables that a sweep has no place for.

    Raises:
        UserError: another check, or metrics that are not the same everywhere.
    """
    asked = set()
    for config in map(read, space.bases.values()):
        if set(checks.wanted(config)) - {"measures"}:
            raise UserError("a sweep runs no check and no dtype; run them one at a time, or add hydra/sweeper=basic")
        asked.add(tuple(metric.name for metric in metrics.chosen(config.metrics)))
    if len(asked) > 1 or any(axis.key in ("check", "dtype", "metrics") for axis in space.axes):
        raise UserError("metrics, check and dtype belong to the whole sweep and take one value")
    return tuple(name for name in asked.pop() if name not in row_columns())


def run(plan: Plan, folder: Path, config: Config, told: dict[str, Any], git: Git | None) -> int:
    """Compute what is missing, and write the table and the report of what there is, however it ends."""
    parts.tidy(folder / "parts", plan.names)
    shelf = collect.shelf(folder, told)
    driver = Driver(plan, shelf, Progress(plan.points), shelf.find())
    todo = deque(driver.jobs())
    if not todo and finished(folder, told):
        driver.progress.show(last=True)
        print(manifest.load(folder)["told"])
        return SOME_FAILED if driver.failed else DONE
    workers = engine.start(plan, config.sweep, len(todo)) if todo else None
    told |= origin(git)
    manifest.write(folder, told)
    status = "partial"
    try:
        if workers is None or driver.run(workers, todo):
            status = "complete"
    except KeyboardInterrupt:
        status = "interrupted"
    finally:
        driver.progress.show(last=True)
        told |= {"status": status, "seconds": time.time() - told["clock"]}
        said = collect.write(folder, told, driver.found)
        with suppress(UserError):  # the results are there; `attn-exp index` says what is in the way
            index.rebuild(Path(config.output_dir))
    print(said)
    return INTERRUPTED if status == "interrupted" else SOME_FAILED if driver.failed else DONE


def finished(folder: Path, told: Mapping[str, Any]) -> bool:
    """Say whether the folder's table and report are those of this very sweep, complete."""
    try:
        before = manifest.load(folder)
    except UserError:
        return False
    same = all(before.get(key) == told[key] for key in ("parts", "report", "format"))
    return same and before["status"] == "complete" and collect.results(folder, told).exists()


def preview(plan: Plan, folder: Path, config: Config) -> str:
    """Return what a sweep would do: axes, points, chunks, what is done already, and about how long the rest takes."""
    there = parts.find(folder / "parts", config.sweep.format)
    done = sum(len(plan.numbers(chunk)) - there[name].failed for chunk, name in enumerate(plan.names) if name in there)
    lines = [f"{axis.key}: {len(axis.values):,} values ({values_shown(axis)})" for axis in plan.space.axes]
    lines.append(f"{plan.points:,} points in {plan.chunks:,} chunks, {done:,} done already")
    if plan.space.size > plan.points:
        lines.append(f"{plan.space.size - plan.points:,} combinations left out: {config.sweep.skip}")
    if plan.points > done:
        lines.append(f"about {span(estimate(plan, config) * (plan.points - done))} for the rest")
    return "\n".join([*lines, str(folder)])


def values_shown(axis: Axis) -> str:
    words = [axis.word(place).partition("=")[2] for place in range(min(6, len(axis.values)))]
    return ", ".join(
        words if len(axis.values) <= 6 else [*words[:5], "...", axis.word(len(axis.values) - 1).partition("=")[2]]
    )


def estimate(plan: Plan, config: Config) -> float:
    """Return the seconds a point takes, from points all over the sweep, shared by the workers."""
    sample = sorted({round(place) for place in (0, (plan.points - 1) / 2, plan.points - 1)})
    compute(plan, Job(0, sample[:1]))
    started = time.perf_counter()
    compute(plan, Job(0, sample))
    workers = engine.workers(engine.chosen(config.sweep), config.sweep)
    return (time.perf_counter() - started) / len(sample) / workers


@contextmanager
def interruptible() -> Iterator[None]:
    """Let a polite kill end a sweep as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def skip_quoted(word: str) -> str:
    """Quote the expression of `sweep.skip`, which Hydra's grammar has no words for."""
    if not word.startswith(RAW) or word[len(RAW) :][:1] in ("'", '"'):
        return word
    return RAW + quoted(word[len(RAW) :])
