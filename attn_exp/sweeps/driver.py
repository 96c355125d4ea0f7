"""Runs a plan: hands chunks to an engine, writes a part for each, and finds the weak points of chunks that kill."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from attn_exp.experiment.progress import PointProgress
from attn_exp.sweeps import parts
from attn_exp.sweeps.engines.engine import Died, Workers
from attn_exp.sweeps.parts import Draft, Part, Shelf
from attn_exp.sweeps.plan import Job, Plan
from attn_exp.sweeps.task import CRASHED, Done, as_csv, failed_line

DEATHS = 2
"""A job may take its worker with it once, by bad luck; the second time it is looked into."""

MOST_WAITING = 16
"""Parts that wait to be written; where there are more, the disk is too slow, and the sweep waits for it."""


@dataclass
class Chunk:
    """A chunk under way: what is known of its points, and what is still missing."""

    kept: dict[int, list[list[str]]] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    missing: int = 0
    failed: int = 0


@dataclass
class Driver:
    """One sweep on disk: its plan, where its parts lie, and what has been counted and written so far."""

    plan: Plan
    shelf: Shelf
    progress: PointProgress
    parts: dict[str, Part]
    shared: Mapping[int, list[list[str]]] = field(default_factory=dict)
    open_chunks: dict[int, Chunk] = field(default_factory=dict)
    deaths: dict[tuple[int, int], int] = field(default_factory=dict)
    writer: Writer = field(init=False)

    def __post_init__(self) -> None:
        self.writer = Writer(self.shelf)

    @property
    def failed(self) -> int:
        """How many points of the parts that are there failed."""
        return sum(self.parts[name].failed for name in self.plan.names if name in self.parts)

    def run(self, workers: Workers, todo: deque[Job]) -> bool:
        """Compute what is missing or failed, and write it; say whether every point now has its row.

        With `fail_fast` the first failure ends it early.
        """
        try:
            self.drain(todo, workers)
        finally:
            workers.close()
            self.close()
        return not self.open_chunks

    def close(self) -> None:
        """Write what still waits, and count it."""
        self.keep(self.writer.close())

    def jobs(self) -> Iterator[Job]:
        """Yield what is left to do, and count what is there already."""
        for chunk, name in enumerate(self.plan.names):
            part, numbers = self.parts.get(name), self.plan.numbers(chunk)
            if part is None:
                kept = {number: self.shared[number] for number in numbers if number in self.shared}
                yield from self.open_chunk(chunk, kept)
            elif not part.failed:
                self.progress.cached += len(numbers)
            else:
                yield from self.open_chunk(chunk, self.shelf.good_lines(part))

    def open_chunk(self, chunk: int, kept: dict[int, list[list[str]]]) -> Iterator[Job]:
        """Yield the points of a chunk that have no lines yet; write its part where all have."""
        numbers = self.plan.numbers(chunk)
        again = [number for number in numbers if number not in kept]
        self.progress.cached += len(kept)
        if not again:
            self.writer.put(self.shelf.draft(self.plan.names[chunk], parts.merged([], kept), 0))
            return
        self.open_chunks[chunk] = Chunk(kept, missing=len(again))
        yield Job(chunk, again if kept else numbers, whole=not kept)

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
                    todo.extendleft(reversed(list(self.after_death(ended))))
                else:
                    self.take(ended)
                    if ended.failed and self.plan.fail_fast:
                        return
            self.keep(self.writer.written())
            self.progress.show()

    def keep(self, written: Iterable[Part]) -> None:
        """Count parts that are on disk."""
        for part in written:
            self.parts[part.chunk] = part

    def take(self, done: Done) -> None:
        """Keep the lines of a job, and let the part be written when its chunk is complete."""
        chunk = self.open_chunks[done.job.chunk]
        chunk.pieces.append(done.lines)
        chunk.missing -= done.computed
        chunk.failed += done.failed
        stopped = self.plan.fail_fast and done.failed
        if chunk.missing == 0 or stopped:
            lines = done.lines if done.job.whole else parts.merged(chunk.pieces, chunk.kept)
            name = self.plan.names[done.job.chunk]
            self.writer.put(self.shelf.draft(name, lines, chunk.failed))
            if not stopped:
                del self.open_chunks[done.job.chunk]
        self.progress.add(done.computed, done.failed)

    def after_death(self, died: Died) -> Iterator[Job]:
        """Yield a job that took its worker with it again, then by halves; a point that does so alone has crashed."""
        job = died.job
        key = (job.numbers[0], len(job.numbers))
        self.deaths[key] = self.deaths.get(key, 0) + 1
        if self.deaths[key] < DEATHS:
            yield job
        elif len(job.numbers) > 1:
            middle = len(job.numbers) // 2
            yield Job(job.chunk, job.numbers[:middle], whole=False)
            yield Job(job.chunk, job.numbers[middle:], whole=False)
        else:
            line = failed_line(self.plan, job.numbers[0], CRASHED, f"{died.reason}, twice")
            self.take(Done(Job(job.chunk, job.numbers, whole=False), as_csv([line]), 1, 1))


class Writer:
    """A thread that writes parts in the order in which it is given them, and gives back what is safe on disk.

    A part must survive a loss of power before it counts, and a disk takes milliseconds to say so: about as long for
    several files as for one. So the thread waits for all parts at once that were computed while it last waited, and no
    worker waits for the disk. It does nothing else; what takes the processor was done before.
    """

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.thread = ThreadPoolExecutor(1)
        self.waiting: deque[Draft] = deque()
        self.batches: deque[Future[list[Part]]] = deque()

    def put(self, draft: Draft) -> None:
        """Let a part be written soon."""
        self.waiting.append(draft)
        self.batches.append(self.thread.submit(self.write_waiting))
        if len(self.waiting) > MOST_WAITING:
            wait([self.batches[-1]])

    def write_waiting(self) -> list[Part]:
        """Write all that waits, together, and return it."""
        drafts = [self.waiting.popleft() for _ in range(len(self.waiting))]
        if drafts:
            self.shelf.write(drafts)
        return [draft.part for draft in drafts]

    def written(self) -> Iterator[Part]:
        """Yield the parts that were written since the last call.

        Raises:
            OSError: one could not be written.
        """
        while self.batches and self.batches[0].done():
            yield from self.batches.popleft().result()

    def close(self) -> Iterator[Part]:
        """Write what still waits, end the thread, and yield the parts that were written since the last call.

        Raises:
            OSError: one could not be written.
        """
        self.thread.shutdown()
        yield from self.written()
        yield from self.write_waiting()  # what an interrupt kept from the thread
