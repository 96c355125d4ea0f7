"""The interface of an engine, which computes the points of a sweep, and the two engines without dependencies.

Each other engine has its own file in this folder.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from attn_exp import errors, registry
from attn_exp.config.schema import Sweep
from attn_exp.errors import UserError
from attn_exp.processes import Pool, usable_cores
from attn_exp.sweeps import engines
from attn_exp.sweeps.plan import Job, Plan
from attn_exp.sweeps.task import Done, compute, elsewhere


@dataclass(frozen=True)
class Died:
    """A job whose worker died, and the reason."""

    job: Job
    reason: str


class Workers(Protocol):
    """Workers that compute jobs. The plan and the job determine the results, whichever worker computes them."""

    @property
    def capacity(self) -> int:
        """How many jobs to submit ahead: more than there are workers, so that no worker waits."""

    def submit(self, job: Job) -> None:
        """Submit a job."""

    def finished(self, seconds: float) -> list[Done | Died]:
        """Return the jobs that have ended, waiting up to `seconds` for the first."""

    def close(self) -> None:
        """Stop at once, and leave no worker running."""


@dataclass(frozen=True)
class Futures:
    """Workers of a library that returns futures. Its own retries must be off, so that the driver learns of every death.

    - `start`: submits one job.
    - `count_cores`: returns the current number of cores.
    - `lost`: the exceptions of a future whose worker was lost.
    - `close`: stops all workers.
    - `jobs`: the job of each future that has not been returned yet.
    """

    start: Callable[[Job], Future[Done]]
    count_cores: Callable[[], float]
    lost: tuple[type[Exception], ...]
    close: Callable[[], None]
    jobs: dict[Future[Done], Job] = field(default_factory=dict)

    @property
    def capacity(self) -> int:
        return max(1, 2 * int(self.count_cores()))

    def submit(self, job: Job) -> None:
        self.jobs[self.start(job)] = job

    def finished(self, seconds: float) -> list[Done | Died]:
        return [self.take_result(future) for future in wait(self.jobs, seconds, FIRST_COMPLETED).done]

    def take_result(self, future: Future[Done]) -> Done | Died:
        job = self.jobs.pop(future)
        try:
            return future.result()
        except self.lost as error:
            return Died(job, f"its worker was lost ({type(error).__name__})")


def start_serial(plan: Plan, workers: int, address: str | None) -> Futures:
    """Compute the jobs one after another in the driver's own process."""

    def submit(job: Job) -> Future[Done]:
        future: Future[Done] = Future()
        future.set_result(elsewhere(plan, job))
        return future

    return Futures(submit, lambda: 0, (), lambda: None)


@dataclass(frozen=True)
class Engine:
    """An engine for sweeps.

    - `start`: starts the workers, given a plan, their number, and the address of a cluster, if any.
    - `library`: the package that the engine needs.
    - `workers`: the number of workers, if it is always the same; None if the settings decide.
    """

    start: Callable[[Plan, int, str | None], Workers]
    library: str = ""
    workers: int | None = None


BUILT_IN = {
    "process": Engine(lambda plan, workers, address: Pool(partial(compute, plan), workers, Died)),
    "serial": Engine(start_serial, workers=1),
}


def find(name: str) -> Engine:
    engine: Engine = BUILT_IN.get(name) or registry.module(engines.__name__, name).ENGINE
    return engine


def choose(sweep: Sweep) -> Engine:
    """Return the engine that the settings name.

    Raises:
        UserError: there is no such engine, or its library is not installed.
    """
    engine = find(errors.chosen(sweep.engine, engines.NAMES, "sweep.engine"))
    if engine.library and importlib.util.find_spec(engine.library) is None:
        raise UserError(f"sweep.engine={sweep.engine} is not installed; pip install 'attn-exp[{sweep.engine}]'")
    return engine


def count_workers(engine: Engine, sweep: Sweep) -> int:
    """Return how many jobs a local engine computes at once."""
    return engine.workers or sweep.workers or usable_cores()


def start(plan: Plan, sweep: Sweep, jobs: int) -> Workers:
    """Start the engine that the settings name, with at most one worker per job.

    Raises:
        UserError: the engine is not installed, or the cluster does not answer.
    """
    engine = choose(sweep)
    return engine.start(plan, max(1, min(count_workers(engine, sweep), jobs)), sweep.address)
