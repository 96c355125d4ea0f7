"""Ray: workers on this machine, or on a cluster that is already running."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from attn_exp.errors import UserError, first_line
from attn_exp.sweeps.engines.engine import Died, Engine
from attn_exp.sweeps.plan import Job, Plan
from attn_exp.sweeps.task import Done, elsewhere

HOME = Path(__file__).resolve().parents[3]
"""The folder of the package, from which workers import it."""


class OnRay:
    """Submits each job to Ray as one task, without Ray's own retries, so that the driver counts every death."""

    def __init__(self, plan: Plan, workers: int, address: str | None) -> None:
        import ray  # noqa: PLC0415 - an extra

        self.ray: Any = ray
        path = os.pathsep.join(filter(None, (str(HOME), os.environ.get("PYTHONPATH"))))
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        # without an address Ray would join whatever cluster runs on this machine or stands in RAY_ADDRESS
        alone = {"address": "local", "num_cpus": workers, "include_dashboard": False}
        chosen = {"address": address} if address else alone
        try:
            self.ray.init(**chosen, **quiet, runtime_env={"env_vars": {"PYTHONPATH": path}})
        except (ConnectionError, ValueError, RuntimeError) as error:
            where = f"sweep.address={address}: no Ray cluster answers there" if address else "Ray does not start here"
            raise UserError(f"{where} ({first_line(error)})") from error
        self.plan = self.ray.put(plan)
        self.task = self.ray.remote(num_cpus=1, max_retries=0)(elsewhere)
        self.capacity = 2 * workers
        self.jobs: dict[Any, Job] = {}

    def submit(self, job: Job) -> None:
        self.jobs[self.task.remote(self.plan, job)] = job

    def finished(self, seconds: float) -> list[Done | Died]:
        self.capacity = max(2, 2 * int(self.ray.cluster_resources().get("CPU", 1)))  # a cluster may grow and shrink
        ready, _ = self.ray.wait(list(self.jobs), num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self.ray.wait(list(self.jobs), num_returns=len(self.jobs), timeout=0)
        return [self.ended(reference) for reference in ready]

    def ended(self, reference: Any) -> Done | Died:
        job = self.jobs.pop(reference)
        try:
            done: Done = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError:
            raise
        except self.ray.exceptions.RayError as error:
            return Died(job, f"its worker was lost ({type(error).__name__})")
        return done

    def close(self) -> None:
        self.ray.shutdown()


ENGINE = Engine(OnRay, library="ray")
