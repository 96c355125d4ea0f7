"""Compute in the driver itself: no other process, nothing to install."""

from __future__ import annotations

from collections import deque

from attn_exp.sweeps.engines.engine import Died, Engine
from attn_exp.sweeps.plan import Job, Plan
from attn_exp.sweeps.task import Done, elsewhere


class Serial:
    """Computes one job after another in the driver."""

    capacity = 1

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.waiting: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        self.waiting.append(job)

    def finished(self, seconds: float) -> list[Done | Died]:
        return [elsewhere(self.plan, self.waiting.popleft())] if self.waiting else []

    def close(self) -> None:
        self.waiting.clear()


ENGINE = Engine(lambda plan, workers, address: Serial(plan), workers=1)
