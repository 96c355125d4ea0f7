"""The Dask engine: workers on this machine, or on a cluster that is already running."""

from __future__ import annotations

import logging
from concurrent.futures import CancelledError
from typing import Any

from attn_exp.errors import UserError
from attn_exp.sweeps.engines.engine import Engine, Futures
from attn_exp.sweeps.plan import Job, Plan
from attn_exp.sweeps.task import Done, elsewhere

SECONDS_TO_ANSWER = 20
PLUGIN = "attn-exp-plan"


def start(plan: Plan, workers: int, address: str | None) -> Futures:
    """Start or join a cluster, and send the plan once to every worker, also to those that join later."""
    import dask  # noqa: PLC0415 - an extra
    import distributed  # noqa: PLC0415

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    cluster = (
        None
        if address
        else distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL
        )
    )
    try:
        client = distributed.Client(cluster or address, timeout=SECONDS_TO_ANSWER)
    except (OSError, ValueError) as error:
        raise UserError(f"sweep.address={address}: no Dask scheduler answers there ({error})") from error
    client.register_plugin(make_plugin(distributed, plan), name=PLUGIN)
    executor = client.get_executor(pure=False)

    lost = (CancelledError, distributed.KilledWorker)

    def close() -> None:
        client.close()
        if cluster is not None:
            cluster.close()

    def submit(job: Job) -> Any:
        return executor.submit(compute_with_plan, job)

    return Futures(submit, lambda: sum(client.nthreads().values()), lost, close)


def make_plugin(distributed: Any, plan: Plan) -> Any:
    """Return a plugin that gives the plan to each worker, for `compute_with_plan`."""

    class PlanPlugin(distributed.WorkerPlugin):  # type: ignore[misc] # the base is known only where Dask is installed
        def __init__(self, plan: Plan) -> None:
            self.plan = plan

    return PlanPlugin(plan)


def compute_with_plan(job: Job) -> Done:
    from distributed import get_worker  # noqa: PLC0415 - an extra

    return elsewhere(get_worker().plugins[PLUGIN].plan, job)


ENGINE = Engine(start, library="distributed")
