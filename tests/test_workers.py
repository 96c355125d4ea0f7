"""Worker processes: what they do comes back, one that dies costs its job alone, and none outlives the pool."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import pytest

from attn_exp import processes

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds


def doubled(number: int) -> int:
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def done(jobs: list[int], count: int = 2) -> dict[int, processes.Ended]:
    ended = dict[int, processes.Ended]()
    with closing(processes.Pool(doubled, count)) as pool:
        for job in jobs:
            pool.submit(job)
        while len(ended) < len(jobs):
            ended |= {one.job: one for one in pool.finished(None)}
    return ended


def test_every_job_comes_back_and_a_death_costs_its_own_alone() -> None:
    ended = done([3, -1, 0, 5])
    assert {job: one.answer for job, one in ended.items()} == {3: 6, -1: None, 0: 0, 5: 10}
    assert {job: one.reason for job, one in ended.items() if one.reason} == {-1: "its worker was killed by SIGKILL"}
