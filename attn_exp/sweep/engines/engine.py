"""Where chunks are computed: one small interface, and the engine that needs nothing."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from attn_exp.config.schema import Sweep
from attn_exp.machine import usable_cores
from attn_exp.sweep.plan import Job, Plan
from attn_exp.sweep.task import Done, alone

COUNT_EVERY = 5.0
"""Seconds between two looks at how large a cluster is, which may grow and shrink."""


@dataclass(frozen=True)
class Died:
    """A job whose worker ended before it did, and how it ended."""

    job: Job
    reason: str


class Engine(Protocol):
    """Somewhere to compute jobs. Results are the same wherever that is: a point carries all that decides them."""

    capacity: int
    """How many jobs to hand over at once: more than there are workers, so that none of them waits."""

    def submit(self, job: Job) -> None:
        """Hand over a job."""

    def finished(self, seconds: float) -> list[Done | Died]:
        """Return the jobs that ended, waiting up to `seconds` for the first."""

    def close(self) -> None:
        """Stop at once and leave no worker behind."""


class Serial:
    """Computes in the driver itself."""

    capacity = 1

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.waiting: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        self.waiting.append(job)

    def finished(self, seconds: float) -> list[Done | Died]:
        return [alone(self.plan, self.waiting.popleft())] if self.waiting else []

    def close(self) -> None:
        self.waiting.clear()


def start(plan: Plan, sweep: Sweep, jobs: int) -> Engine:
    """Return the engine that the settings name, with no more workers than there are jobs.

    Raises:
        UserError: an engine that is not installed, or a cluster that does not answer.
    """
    workers = max(1, min(sweep.workers or usable_cores(), jobs))
    if not jobs:
        return Serial(plan)
    if sweep.engine == "process":
        from attn_exp.sweep.engines.pool import Pool  # noqa: PLC0415 - the engines that are not used are not imported

        return Pool(plan, workers)
    if sweep.engine == "ray":
        from attn_exp.sweep.engines.on_ray import OnRay  # noqa: PLC0415

        return OnRay(plan, workers, sweep.address)
    if sweep.engine == "dask":
        from attn_exp.sweep.engines.on_dask import OnDask  # noqa: PLC0415

        return OnDask(plan, workers, sweep.address)
    return Serial(plan)
