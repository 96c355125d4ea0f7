"""Worker processes of this machine: each holds one job at a time, so that a death is one job's and no other's.

Whoever waits for them holds no lock: a signal may end that at any moment, and nobody waits for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from threadpoolctl import threadpool_limits

from attn_exp import system
from attn_exp.stopping import held


@dataclass
class Worker:
    """A process, the pipe to it, and what it is computing."""

    process: BaseProcess
    pipe: Connection
    job: Any = None


@dataclass(frozen=True)
class Ended:
    """A job that ended: what came of it, or how its worker ended before it did."""

    job: Any
    answer: Any = None
    reason: str = ""


class Pool:
    """A few processes that do a task; one that dies is replaced, and the job that it held is given back."""

    def __init__(self, task: Callable[[Any], Any], count: int) -> None:
        self.context = system.processes()
        self.task = task
        self.waiting: deque[Any] = deque()
        self.workers: list[Worker] = []
        try:
            for _ in range(count):
                self.workers.append(self.hired())
        except BaseException:
            self.close()
            raise

    def hired(self) -> Worker:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=serve, args=(self.task, theirs), daemon=True)
        with held():  # or a signal would find the worker before it knows whose it is
            system.start(process)
        theirs.close()
        return Worker(process, ours)

    def submit(self, job: Any) -> None:
        """Hand over a job, which is not None."""
        self.waiting.append(job)
        self.hand_out()

    def hand_out(self) -> None:
        """Give waiting jobs to idle workers; one that died idle is replaced first."""
        for place, worker in enumerate(self.workers):
            if worker.job is None and self.waiting:
                if not worker.process.is_alive():
                    worker.pipe.close()
                    worker = self.workers[place] = self.hired()  # noqa: PLW2901
                worker.job = self.waiting.popleft()
                with suppress(OSError):  # it died just now; `finished` sees that
                    worker.pipe.send(worker.job)

    def finished(self, seconds: float | None) -> list[Ended]:
        """Return the jobs that ended, waiting up to `seconds` for the first, or as long as it takes."""
        busy = [worker for worker in self.workers if worker.job is not None]
        wait([handle for worker in busy for handle in (worker.pipe, worker.process.sentinel)], seconds)
        jobs: list[Ended] = []
        for place, worker in enumerate(self.workers):
            job = self.ended(worker) if worker.job is not None else None
            if job is not None:
                jobs.append(job)
                if job.reason:
                    worker.pipe.close()
                    self.workers[place] = self.hired()
        self.hand_out()
        return jobs

    def ended(self, worker: Worker) -> Ended | None:
        """Return what became of a worker's job, or None while it is being computed."""
        job, alive = worker.job, worker.process.is_alive()
        try:
            if worker.pipe.poll():
                answer = worker.pipe.recv()
                worker.job = None
                return Ended(job, answer)
        except (EOFError, OSError):
            worker.process.join(1)
            alive = worker.process.is_alive()
        return None if alive else Ended(job, reason=f"its worker {system.ending(worker.process.exitcode)}")

    def close(self) -> None:
        """Stop at once and leave no worker behind."""
        with held():
            for worker in self.workers:
                if worker.process.pid is not None and worker.process.is_alive():
                    system.end_at_once(worker.process.pid)
            for worker in self.workers:
                worker.process.join()
                worker.pipe.close()


def serve(task: Callable[[Any], Any], pipe: Connection) -> None:
    """Do jobs until the parent ends; Ctrl-C is the parent's to handle."""
    system.serve_parent()
    with threadpool_limits(1), suppress(EOFError, OSError):
        while True:
            pipe.send(task(pipe.recv()))
