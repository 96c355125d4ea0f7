"""Run a plan: hand chunks to an engine, write a part for each, and isolate points that kill workers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from attn_exp.experiment.progress import PointProgress
from attn_exp.sweeps.engines.engine import Died, Workers
from attn_exp.sweeps.parts import Lines, Part, Shelf, merged
from attn_exp.sweeps.plan import Job, Plan
from attn_exp.sweeps.task import CRASHED, Done, as_csv, failed_line

DEATHS = 2
"""A job's worker may die once by bad luck; the second time, the job is split."""


@dataclass
class Chunk:
    """A chunk in progress: the lines known so far, and the number of points still missing and failed."""

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
    deaths: Counter[tuple[int, int]] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """The number of failed points in the existing parts."""
        return sum(part.failed for part in self.parts.values())

    def jobs(self) -> Iterator[Job]:
        """Yield the remaining jobs, count what exists, and write the chunks that earlier sweeps complete."""
        for chunk, name in enumerate(self.plan.names):
            part, numbers = self.parts.get(name), self.plan.numbers(chunk)
            if part is not None and not part.failed:
                self.progress.cached += len(numbers)
                continue
            kept = {number: self.shared[number] for number in numbers if number in self.shared}
            kept = kept if part is None else self.shelf.good_lines(part)
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
        """Store the lines of a job, and write the part if its chunk is complete or the sweep stops."""
        chunk = self.open_chunks[done.job.chunk]
        chunk.pieces.append(done.lines)
        chunk.missing -= done.computed
        chunk.failed += done.failed
        self.progress.add(done.computed, done.failed)
        if chunk.missing == 0 or (self.plan.fail_fast and done.failed):
            self.write(done.job.chunk)

    def write(self, number: int) -> None:
        """Write the part of a chunk."""
        chunk, name = self.open_chunks[number], self.plan.names[number]
        lines = chunk.pieces[0] if len(chunk.pieces) == 1 else merged(chunk.pieces)
        self.parts[name] = self.shelf.write(name, lines, chunk.failed)
        if chunk.missing == 0:
            del self.open_chunks[number]

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
