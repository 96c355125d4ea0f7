"""Local worker processes that hold one job at a time, so that a death costs that job alone.

The pools of the standard library lose every running job when one worker dies, or wait for it forever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from attn_exp import system


@dataclass
class Worker:
    """A process, the pipe to it, and its current job."""

    process: Any
    pipe: Any
    job: Any = None


@dataclass(frozen=True)
class Ended:
    """A finished job: its answer, or the `reason` why its worker gave none."""

    job: Any
    answer: Any = None
    reason: str = ""


class Pool:
    """A few processes that run one task; one that dies is replaced, and its job is returned as ended."""

    def __init__(self, task: Callable[[Any], Any], count: int) -> None:
        self.task, self.waiting = task, deque[Any]()
        self.workers = [self.start_worker() for _ in range(count)]

    def start_worker(self) -> Worker:
        from multiprocessing import Pipe  # noqa: PLC0415 - most commands start no worker

        ours, theirs = Pipe()
        process = system.start_worker(serve, self.task, theirs)
        theirs.close()
        return Worker(process, ours)

    def submit(self, job: Any) -> None:
        """Submit a job, which must not be None."""
        self.waiting.append(job)
        self.hand_out()

    def hand_out(self) -> None:
        for worker in self.workers:
            if worker.job is None and self.waiting:
                worker.job = self.waiting.popleft()
                with suppress(OSError):  # it just died; `finished` handles that
                    worker.pipe.send(worker.job)

    def finished(self, seconds: float | None) -> list[Ended]:
        """Return the jobs that ended, waiting up to `seconds` for the first, or without limit for None."""
        from multiprocessing.connection import wait  # noqa: PLC0415 - as above

        ready, ended = wait([worker.pipe for worker in self.workers if worker.job is not None], seconds), list[Ended]()
        for place, worker in enumerate(self.workers):
            if worker.pipe in ready:
                try:
                    ended.append(Ended(worker.job, worker.pipe.recv()))
                    worker.job = None
                except (EOFError, OSError):
                    ended.append(Ended(worker.job, reason=self.bury(worker)))
                    self.workers[place] = self.start_worker()
        self.hand_out()
        return ended

    def bury(self, worker: Worker) -> str:
        """Let a worker that closed its pipe end, and return how it did."""
        worker.process.join(5)
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        code = worker.process.exitcode
        return f"its worker {'was ended by' if code < 0 else 'ended with'} {system.describe_exit(code)}"

    def close(self) -> None:
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.join()
            worker.pipe.close()


def serve(task: Callable[[Any], Any], pipe: Any) -> None:
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - only workers need it

    system.serve_parent()
    with threadpool_limits(1), suppress(EOFError, OSError):
        while True:
            pipe.send(task(pipe.recv()))
