"""One sweep, from its command to its results; a driver hands chunks to an engine and writes a part for each."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attn_exp import patience, registry
from attn_exp.config.schema import Config
from attn_exp.config.spelling import Repeat, quoted
from attn_exp.errors import UserError, printable
from attn_exp.experiment.progress import PointProgress
from attn_exp.runs import trust
from attn_exp.runs.folders import COMPLETE, rebuild_index
from attn_exp.runs.provenance import origin
from attn_exp.sweeps import collect, manifest
from attn_exp.sweeps.engines import engine
from attn_exp.sweeps.engines.engine import Died, Workers
from attn_exp.sweeps.expand import expand
from attn_exp.sweeps.manifest import About
from attn_exp.sweeps.parts import MOST_POINTS, Lines, Part, Shelf, create_folder, locked, merged
from attn_exp.sweeps.plan import Job, Plan, identity, is_deciding, make_plan
from attn_exp.sweeps.preflight import added_metrics, check_sweep, draws_nothing, preview
from attn_exp.sweeps.task import CRASHED, Done, as_csv, failed_line

DONE, SOME_FAILED = 0, 1
RAW = "sweep.skip="
DEATHS = 2
"""The worker of a single point may die once by bad luck."""
GOLDEN = (math.sqrt(5) - 1) / 2
"""Steps of this size leave the most even gaps (Vogel 1979)."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a sweep: the text for the terminal, exit code, folder, and whether that holds results."""

    text: str
    code: int
    folder: Path
    kept: bool = True


def sweep(words: Sequence[str], folders: Sequence[str]) -> Outcome:
    """Run the sweep that the words of `-m` describe, and return its results as text, and its folder.

    Raises:
        UserError: a mistake in the words, found before anything starts, or a folder that cannot be written to.
    """
    space, first = expand([quote_skip(word) for word in words], folders)
    plan = make_plan(space, first.sweep, added_metrics(space))
    folder = Path(first.output_dir) / "sweeps" / (first.sweep.name or identity(space, first.sweep, folders))
    check_sweep(plan, folder, first)
    command = Repeat(tuple(words), tuple(folders), many=True, own=registry.files())
    about = manifest.describe_sweep(plan, first, command) | {"exact": draws_nothing(space)}
    if first.sweep.dry_run:
        return Outcome(preview(plan, folder, first, collect.find_whole(folder, about)), DONE, folder, kept=False)
    try:
        create_folder(folder)
        with locked(folder):
            return run(plan, folder, first, about)
    except OSError as error:
        hint = "finished points are kept: make room and run the same command again"
        complain(f"error: {folder}: cannot be written to ({error.strerror}); {hint}")
        return Outcome("", SOME_FAILED, folder, kept=False)


def run(plan: Plan, folder: Path, config: Config, about: dict[str, Any]) -> Outcome:
    """Compute what is missing, and write the table and report of what exists, however it ends.

    A complete sweep keeps its time, however often its report is rewritten.

    Raises:
        UserError: the folder holds another sweep, which shares no point with this one.
    """
    last, shelf = manifest.find_manifest(folder), collect.shelf_of(folder, about)
    is_same = last is not None and last["parts"] == about["parts"]
    whole, damaged = shelf.find(plan.names)
    with collect.refuse_damaged(folder):
        shared = shelf.find_shared(plan, whole)
    if last is not None and not (is_same or shared) and is_another(last, about, plan):
        raise UserError(
            f"{folder} holds another sweep: {last['command']}; choose another sweep.name, or remove that folder"
        )
    if damaged:
        complain(f"damaged parts, computed again: {collect.list_some(damaged)}")
    driver = Driver(plan, shelf, PointProgress(plan.points), whole, shared)
    jobs = list(driver.jobs())
    if last is not None and not jobs and is_finished(folder, about, last):
        driver.progress.show(last=True)
        return Outcome(last["told"], driver.exit_code(config, last.get("disagreeing", 0)), folder)
    workers = engine.start(plan, config.sweep, len(jobs)) if jobs else None
    about |= origin()
    manifest.write_manifest(folder, about)
    spent = float(last.get("seconds", 0.0)) if last is not None and is_same else 0.0
    status, code = collect.PARTIAL, None
    if not plan.fail_fast:  # expensive points are often adjacent, so any first part of the jobs is taken from all over
        jobs = [job for _, job in sorted(enumerate(jobs), key=lambda pair: pair[0] * GOLDEN % 1)]
    try:
        if workers is None or driver.run(workers, deque(jobs)):
            status = COMPLETE
    except KeyboardInterrupt as stopped:
        status, code = "interrupted", patience.exit_code(stopped)
    finally:
        driver.progress.show(last=True)
        seconds = spent if workers is None and spent else spent + time.time() - about["clock"]
        about |= {"status": status, "seconds": seconds}
        with collect.refuse_damaged(folder):
            text, disagreeing = collect.write_results(folder, about, driver.parts)
        with suppress(UserError):  # the results are saved; `attn-exp index` reports the problem
            rebuild_index(Path(config.output_dir))
    return Outcome(text, driver.exit_code(config, disagreeing) if code is None else code, folder)


def is_another(last: About, about: About, plan: Plan) -> bool:
    """Return whether the words of two sweeps without a common point ask for other results."""
    one, other = ([word for word in sorted(sweep["words"]) if is_deciding(word)] for sweep in (last, about))
    return one != other and last["version"] == about["version"] and plan.points <= MOST_POINTS


def is_finished(folder: Path, about: About, last: About) -> bool:
    settings = ("parts", "report", "figures", "format", "sweep")
    if last["status"] != COMPLETE or any(last[key] != about[key] for key in settings) or "told" not in last:
        return False
    try:
        return bool(trust.seal_of_file(folder / f"results.{about['format']}") == last.get("results"))
    except OSError:
        return False


def complain(message: str) -> None:
    print(f"attn_exp: {printable(message)}", file=sys.stderr)


def quote_skip(word: str) -> str:
    """Quote the expression of `sweep.skip`, which Hydra's grammar cannot parse."""
    is_raw = word.startswith(RAW) and word[len(RAW) :][:1] not in ("'", '"')
    return RAW + quoted(word[len(RAW) :]) if is_raw else word


@dataclass
class Chunk:
    """A chunk in progress: its lines so far, and the numbers of missing and failed points."""

    pieces: list[bytes]
    missing: int
    failed: int = 0


@dataclass
class Driver:
    """One sweep on disk: its plan, the shelf of its parts, and what has been counted and written so far."""

    plan: Plan
    shelf: Shelf
    progress: PointProgress
    parts: dict[str, Part]
    shared: Mapping[int, Lines] = field(default_factory=dict)
    open_chunks: dict[int, Chunk] = field(default_factory=dict)
    deaths: Counter[int] = field(default_factory=Counter)

    def exit_code(self, config: Config, disagreeing: int) -> int:
        """Return 1 if points failed, or if `strict` is set and a point disagrees with a published figure."""
        is_failed = any(part.failed for part in self.parts.values())
        return SOME_FAILED if is_failed or (config.strict and disagreeing) else DONE

    def jobs(self) -> Iterator[Job]:
        """Yield the remaining jobs, count what exists, and write the chunks that other parts complete."""
        for chunk, name in enumerate(self.plan.names):
            part, numbers = self.parts.get(name), self.plan.numbers(chunk)
            if part is not None and not part.failed:
                self.progress.cached += len(numbers)
                continue
            kept = {number: self.shared[number] for number in numbers if number in self.shared}
            self.progress.cached += len(kept)
            missing = [number for number in numbers if number not in kept]
            pieces = [as_csv([line for lines in kept.values() for line in lines])] if kept else []
            self.open_chunks[chunk] = Chunk(pieces, len(missing))
            if missing:
                yield Job(chunk, missing)
            else:
                self.write(chunk)

    def run(self, workers: Workers, todo: deque[Job]) -> bool:
        """Compute and write what is missing or failed; return whether every point now has its row.

        With `fail_fast` the first failure ends it early.
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
                        todo.extendleft(self.after_death(ended))
                    else:
                        self.take(ended)
                        if ended.failed and self.plan.fail_fast:
                            return not self.open_chunks
                self.progress.show()
        finally:
            workers.close()
        return not self.open_chunks

    def take(self, done: Done) -> None:
        chunk = self.open_chunks[done.job.chunk]
        chunk.pieces.append(done.lines)
        chunk.missing -= done.computed
        chunk.failed += done.failed
        self.progress.add(done.computed, done.failed)
        if chunk.missing == 0 or (self.plan.fail_fast and done.failed):
            self.write(done.job.chunk)

    def write(self, number: int) -> None:
        chunk, name = self.open_chunks[number], self.plan.names[number]
        lines = chunk.pieces[0] if len(chunk.pieces) == 1 else merged(chunk.pieces)
        self.parts[name] = self.shelf.write(name, lines, chunk.failed)
        if chunk.missing == 0:
            del self.open_chunks[number]

    def after_death(self, died: Died) -> list[Job]:
        """Return the jobs that replace one whose worker died: its points alone, each of them twice at most.

        A point that kills its worker both times is recorded as crashed.
        """
        job, number = died.job, died.job.numbers[0]
        if len(job.numbers) > 1:
            return [Job(job.chunk, [number]) for number in job.numbers]
        self.deaths[number] += 1
        if self.deaths[number] < DEATHS:
            return [job]
        line = failed_line(self.plan, number, CRASHED, f"{died.reason}, twice")
        self.take(Done(job, as_csv([line]), 1, 1))
        return []
