"""Run a plan: hand chunks to an engine, write a part for each, and isolate points that kill workers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from attn_exp.experiment.progress import PointProgress
from attn_exp.sweeps.engines.engine import Died, Workers
from attn_exp.sweeps.parts import Part, Shelf, merged
from attn_exp.sweeps.plan import Job, Plan
from attn_exp.sweeps.task import CRASHED, Done, as_csv, failed_line

DEATHS = 2
"""A job's worker may die once by bad luck; the second time, the job is split."""

WRITERS, MOST_WAITING = 4, 16
"""Threads that wait for the disk, so that no worker does, and the number of parts that may queue for them."""


@dataclass
class Chunk:
    """A chunk in progress: the lines known so far, and the number still missing."""

    kept: dict[int, list[list[str]]] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    missing: int = 0
    failed: int = 0


@dataclass
class Driver:
    """One sweep on disk: its plan, the shelf of its parts, and what has been counted and written so far."""

    plan: Plan
    shelf: Shelf
    progress: PointProgress
    parts: dict[str, Part]
    shared: Mapping[int, list[list[str]]] = field(default_factory=dict)
    open_chunks: dict[int, Chunk] = field(default_factory=dict)
    deaths: Counter[tuple[int, int]] = field(default_factory=Counter)
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(WRITERS))
    writing: deque[Future[Part]] = field(default_factory=deque)

    @property
    def failed(self) -> int:
        """The number of failed points in the existing parts."""
        return sum(self.parts[name].failed for name in self.plan.names if name in self.parts)

    def run(self, workers: Workers, todo: deque[Job]) -> bool:
        """Compute and write what is missing or failed; return whether every point now has its row.

        With `fail_fast` the first failure ends it early.
        """
        try:
            self.drain(todo, workers)
        finally:
            workers.close()
            self.close()
        return not self.open_chunks

    def close(self) -> None:
        """Wait until the parts in progress are written, and count them."""
        self.threads.shutdown()
        self.count_written()

    def jobs(self) -> Iterator[Job]:
        """Yield the remaining jobs, count what exists, and write the chunks that earlier sweeps complete."""
        for chunk, name in enumerate(self.plan.names):
            part, numbers = self.parts.get(name), self.plan.numbers(chunk)
            if part is not None and not part.failed:
                self.progress.cached += len(numbers)
                continue
            if part is not None:
                kept = self.shelf.good_lines(part)
            else:
                kept = {number: self.shared[number] for number in numbers if number in self.shared}
            self.progress.cached += len(kept)
            missing = [number for number in numbers if number not in kept]
            if missing:
                self.open_chunks[chunk] = Chunk(kept, missing=len(missing))
                yield Job(chunk, missing)
            else:
                self.write(chunk, Chunk(kept))

    def drain(self, todo: deque[Job], workers: Workers) -> None:
        """Keep the workers busy until nothing is left."""
        under_way = 0
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
                        return
            self.count_written()
            self.progress.show()

    def take(self, done: Done) -> None:
        """Store the lines of a job, and write the part if its chunk is complete or the sweep stops."""
        chunk = self.open_chunks[done.job.chunk]
        chunk.pieces.append(done.lines)
        chunk.missing -= done.computed
        chunk.failed += done.failed
        if chunk.missing == 0 or (self.plan.fail_fast and done.failed):
            self.write(done.job.chunk, chunk)
        if chunk.missing == 0:
            del self.open_chunks[done.job.chunk]
        self.progress.add(done.computed, done.failed)

    def write(self, number: int, chunk: Chunk) -> None:
        """Write a part in a thread; if too many are queued, wait for the disk."""
        lines = chunk.pieces[0] if len(chunk.pieces) == 1 and not chunk.kept else merged(chunk.pieces, chunk.kept)
        self.writing.append(self.threads.submit(self.shelf.write, self.plan.names[number], lines, chunk.failed))
        if len(self.writing) > MOST_WAITING:
            self.writing[0].result()

    def count_written(self) -> None:
        """Count the parts that are safely on disk.

        Raises:
            OSError: one could not be written.
        """
        while self.writing and self.writing[0].done():
            part = self.writing.popleft().result()
            self.parts[part.chunk] = part

    def after_death(self, died: Died) -> list[Job]:
        """Return the jobs that replace one whose worker died: the same job, then its halves.

        A single point that kills its worker repeatedly is recorded as crashed.
        """
        job = died.job
        key = (job.numbers[0], len(job.numbers))
        self.deaths[key] += 1
        if self.deaths[key] < DEATHS:
            return [job]
        if len(job.numbers) > 1:
            middle = len(job.numbers) // 2
            return [Job(job.chunk, job.numbers[middle:]), Job(job.chunk, job.numbers[:middle])]
        line = failed_line(self.plan, job.numbers[0], CRASHED, f"{died.reason}, twice")
        self.take(Done(job, as_csv([line]), 1, 1))
        return []
