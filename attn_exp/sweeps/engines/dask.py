"""Dask: workers on this machine, or on a cluster that is already running."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from attn_exp.errors import UserError
from attn_exp.sweeps.engines.engine import Died, Engine
from attn_exp.sweeps.plan import Job, Plan
from attn_exp.sweeps.task import Done, elsewhere

SECONDS_TO_ANSWER = 20
PLUGIN = "attn-exp-plan"


class OnDask:
    """Submits each job to Dask as one task; every worker, including later ones, gets the plan once."""

    def __init__(self, plan: Plan, workers: int, address: str | None) -> None:
        import dask  # noqa: PLC0415 - an extra
        import distributed  # noqa: PLC0415

        self.dask: Any = distributed
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        dask.config.set({"distributed.scheduler.allowed-failures": 0})  # the driver counts them
        alone = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
        self.cluster = None if address else distributed.LocalCluster(**alone, silence_logs=logging.CRITICAL)
        try:
            self.client = self.dask.Client(self.cluster or address, timeout=SECONDS_TO_ANSWER)
        except (OSError, ValueError) as error:
            raise UserError(f"sweep.address={address}: no Dask scheduler answers there ({error})") from error
        self.client.register_plugin(plugin(self.dask, plan), name=PLUGIN)
        self.capacity = 2 * workers
        self.jobs: dict[Any, Job] = {}

    def submit(self, job: Job) -> None:
        self.jobs[self.client.submit(with_the_plan, job, pure=False)] = job

    def finished(self, seconds: float) -> list[Done | Died]:
        self.capacity = max(2, 2 * sum(self.client.nthreads().values()))  # a cluster may grow and shrink
        with suppress(TimeoutError, self.dask.CancelledError):
            self.dask.wait(list(self.jobs), timeout=seconds, return_when="FIRST_COMPLETED")
        return [self.ended(future) for future in list(self.jobs) if future.status != "pending"]

    def ended(self, future: Any) -> Done | Died:
        job = self.jobs.pop(future)
        try:
            done: Done = future.result(timeout=SECONDS_TO_ANSWER)
        except (TimeoutError, self.dask.CancelledError, self.dask.KilledWorker) as error:
            return Died(job, f"its worker was lost ({type(error).__name__})")
        return done

    def close(self) -> None:
        self.client.close()
        if self.cluster is not None:
            self.cluster.close()


def plugin(distributed: Any, plan: Plan) -> Any:
    class Given(distributed.WorkerPlugin):  # type: ignore[misc] # the base is known only where Dask is installed
        def __init__(self, plan: Plan) -> None:
            self.plan = plan

    return Given(plan)


def with_the_plan(job: Job) -> Done:
    from distributed import get_worker  # noqa: PLC0415 - an extra

    given: Any = get_worker().plugins[PLUGIN]
    return elsewhere(given.plan, job)


ENGINE = Engine(OnDask, library="distributed")
