"""Worker processes on this machine: each holds one job at a time, so that a death is one job's and no other's."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from threadpoolctl import threadpool_limits

from attn_exp import system
from attn_exp.stopping import held
from attn_exp.sweeps.engines.engine import Died, Engine
from attn_exp.sweeps.plan import Job, Plan
from attn_exp.sweeps.task import Done, compute


@dataclass
class Worker:
    """A process, the pipe to it, and what it is computing."""

    process: BaseProcess
    pipe: Connection
    job: Job | None = None


class Pool:
    """A few processes; one that dies is replaced, and the job that it held is given back."""

    def __init__(self, plan: Plan, workers: int) -> None:
        self.context = system.processes()
        self.plan = plan
        self.waiting: deque[Job] = deque()
        self.capacity = workers + 2
        self.workers = [self.hired() for _ in range(workers)]

    def hired(self) -> Worker:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=serve, args=(self.plan, theirs), daemon=True)
        with held():  # or a signal would find the worker before it knows whose it is
            system.start(process)
        theirs.close()
        return Worker(process, ours)

    def submit(self, job: Job) -> None:
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

    def finished(self, seconds: float) -> list[Done | Died]:
        busy = [worker for worker in self.workers if worker.job is not None]
        wait([handle for worker in busy for handle in (worker.pipe, worker.process.sentinel)], seconds)
        jobs: list[Done | Died] = []
        for place, worker in enumerate(self.workers):
            job = self.ended(worker) if worker.job is not None else None
            if job is not None:
                jobs.append(job)
            if isinstance(job, Died):
                worker.pipe.close()
                self.workers[place] = self.hired()
        self.hand_out()
        return jobs

    def ended(self, worker: Worker) -> Done | Died | None:
        """Return what became of a worker's job, or None while it is being computed."""
        job, alive = worker.job, worker.process.is_alive()
        assert job is not None
        try:
            if worker.pipe.poll():
                done: Done = worker.pipe.recv()
                worker.job = None
                return done
        except (EOFError, OSError):
            worker.process.join(1)
            alive = worker.process.is_alive()
        if alive:
            return None
        return Died(job, f"its worker {system.ending(worker.process.exitcode)}")

    def close(self) -> None:
        for worker in self.workers:
            if worker.process.pid is not None and worker.process.is_alive():
                system.end_at_once(worker.process.pid)
        for worker in self.workers:
            worker.process.join()
            worker.pipe.close()


def serve(plan: Plan, pipe: Connection) -> None:
    """Compute jobs until the driver ends; Ctrl-C is the driver's to handle."""
    system.serve_parent()
    with threadpool_limits(1), suppress(EOFError, OSError):
        while True:
            pipe.send(compute(plan, pipe.recv()))


ENGINE = Engine(lambda plan, workers, address: Pool(plan, workers))
