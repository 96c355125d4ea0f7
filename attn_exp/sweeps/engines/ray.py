"""The Ray engine: workers on this machine, or on a cluster that is already running."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from attn_exp.errors import UserError, first_line
from attn_exp.sweeps.engines.engine import Engine, Futures
from attn_exp.sweeps.plan import Job, Plan
from attn_exp.sweeps.task import elsewhere

HOME = Path(__file__).resolve().parents[3]
"""The folder that contains the package, from which workers import it."""


def start(plan: Plan, workers: int, address: str | None) -> Futures:
    import ray  # noqa: PLC0415 - an extra

    path = os.pathsep.join(filter(None, (str(HOME), os.environ.get("PYTHONPATH"))))
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    # without an address, Ray would join any cluster that runs on this machine or that RAY_ADDRESS names
    local = {"address": "local", "num_cpus": workers, "include_dashboard": False}
    cluster = {"address": address} if address else local
    try:
        ray.init(**cluster, **quiet, runtime_env={"env_vars": {"PYTHONPATH": path}})
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = f"sweep.address={address}: no Ray cluster answers there" if address else "Ray does not start here"
        raise UserError(f"{where} ({first_line(error)})") from error
    shared_plan, task = ray.put(plan), ray.remote(num_cpus=1, max_retries=0)(elsewhere)

    def submit(job: Job) -> Any:
        return task.remote(shared_plan, job).future()

    errors = ray.exceptions
    lost = (
        errors.WorkerCrashedError, errors.LocalRayletDiedError, errors.NodeDiedError, errors.OutOfMemoryError,
        errors.ObjectLostError,
    )  # fmt: skip
    return Futures(submit, lambda: ray.cluster_resources().get("CPU", 1), lost, ray.shutdown)


ENGINE = Engine(start, library="ray")
