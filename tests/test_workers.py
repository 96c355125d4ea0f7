"""Worker processes: what they do comes back, one that dies costs its job alone, and a signal at any moment ends all."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from types import FrameType
from typing import Any

import pytest

from attn_exp import stopping, workers

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds


def doubled(number: int) -> int:
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def done(jobs: list[int], count: int = 2) -> dict[int, workers.Ended]:
    ended = dict[int, workers.Ended]()
    with closing(workers.Pool(doubled, count)) as pool:
        for job in jobs:
            pool.submit(job)
        while len(ended) < len(jobs):
            ended |= {one.job: one for one in pool.finished(None)}
    return ended


def test_every_job_comes_back_and_a_death_costs_its_own_alone() -> None:
    ended = done([3, -1, 0, 5])
    assert {job: one.answer for job, one in ended.items()} == {3: 6, -1: None, 0: 0, 5: 10}
    assert {job for job, one in ended.items() if one.reason} == {-1}


@pytest.fixture
def alarm() -> Iterator[None]:
    """End what waits for ever."""

    def hang(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("it waits for ever")

    before = signal.signal(signal.SIGALRM, hang)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def stopped_after(steps: int) -> int:
    """Use workers, stopped after so many steps of the program that waits for them; return how many it made."""
    made, here = 0, os.getpid()

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal made
        frame.f_trace_opcodes = True
        made += event == "opcode"
        if made == steps and os.getpid() == here and not stopping.ASKED.holds:
            sys.settrace(None)
            stopping.stop(signal.SIGTERM, frame)
        return step

    def traced(frame: FrameType, event: str, argument: Any) -> Any:
        path = frame.f_code.co_filename
        watched = ("workers.py", "concurrent", "multiprocessing", "threading.py", "stopping.py")
        return step(frame, event, argument) if any(part in path for part in watched) else None

    with stopping.stoppable():
        before = sys.gettrace()
        sys.settrace(traced)
        try:
            done([1, 2, 3])
        finally:
            sys.settrace(before)
    return made


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")  # cut short
def test_a_signal_after_any_step_ends_all_workers_and_nobody_waits_for_ever(alarm: None) -> None:
    """Locks of the standard library's pools stay taken where a signal comes between a lock and its block."""
    signal.alarm(20)
    all_of_them = stopped_after(-1)
    for steps in range(1, all_of_them, 53):
        signal.alarm(20)
        with suppress(stopping.Stopped):
            stopped_after(steps)
