"""Worker processes on this machine."""

from __future__ import annotations

from functools import partial

from attn_exp.processes import Pool
from attn_exp.sweeps.engines.engine import Died, Engine
from attn_exp.sweeps.plan import Job, Plan
from attn_exp.sweeps.task import Done, compute


class Processes:
    """A few processes; if one dies, its job is returned as `Died`."""

    def __init__(self, plan: Plan, workers: int) -> None:
        self.pool = Pool(partial(compute, plan), workers)
        self.capacity = workers + 2

    def submit(self, job: Job) -> None:
        self.pool.submit(job)

    def finished(self, seconds: float) -> list[Done | Died]:
        return [Died(one.job, one.reason) if one.reason else one.answer for one in self.pool.finished(seconds)]

    def close(self) -> None:
        self.pool.close()


ENGINE = Engine(lambda plan, workers, address: Processes(plan, workers))
