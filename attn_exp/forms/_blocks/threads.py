"""Tasks worked on side by side, by the caller's thread and helpers that wait between calls."""

from __future__ import annotations

import _thread
import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from threading import Lock
from typing import TypeVar

Task = TypeVar("Task")

CPU: Callable[[], int] | None = getattr(ctypes.CDLL(None), "sched_getcpu", None) if os.name == "posix" else None
"""Tells on which processor the calling thread runs, where the system's library can."""


class Helper:
    """A thread that sleeps until it is given something to do.

    Waking one takes a third of the time of starting a thread; `concurrent.futures` takes as long as a start.
    """

    def __init__(self) -> None:
        self.given, self.ended = Lock(), Lock()
        self.given.acquire()
        self.ended.acquire()
        self.job: Callable[[], None] | None = None
        self.number: int | None = None
        self.shunned: int | None = None
        _thread.start_new_thread(self.live, ())

    def live(self) -> None:
        self.number = threading.get_native_id()
        while True:
            self.given.acquire()
            job, self.job = self.job, None
            if job is not None:
                job()
            self.ended.release()
            if job is None:
                return

    def start(self, job: Callable[[], None] | None) -> None:
        """Give it something to do, which must not raise; None ends it."""
        self.job = job
        self.keep_away()
        self.given.release()

    def keep_away(self) -> None:
        """Keep off the processor that the caller runs on.

        Linux wakes a thread beside the one that wakes it while other processors look busy, and those of a virtual
        machine look so when they sleep: both threads then share one processor for as long as they work.
        """
        here = CPU() if CPU and hasattr(os, "sched_setaffinity") else None
        if here is None or here == self.shunned or self.number is None:
            return
        others = os.sched_getaffinity(0) - {here}
        with suppress(OSError):  # processors can be taken away at any time
            os.sched_setaffinity(self.number, others)
            self.shunned = here


IDLE: deque[Helper] = deque()
"""Helpers with nothing to do: threads belong to the process, and so does what remembers them."""


def dismiss() -> None:
    """End the idle helpers, so that a process forks with no thread of ours."""
    while helper := borrowed():
        helper.start(None)
        helper.ended.acquire()


def borrowed() -> Helper | None:
    with suppress(IndexError):
        return IDLE.pop()
    return None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=dismiss, after_in_child=IDLE.clear)


def together(work: Callable[[Iterator[Task]], None], tasks: Iterable[Task], threads: int) -> None:
    """Run `work` on `threads` threads, the caller's among them; each draws its next task from one queue.

    Waits for all and raises the first exception; after one, no further task is drawn.
    """
    queue, failures = deque(tasks), list[BaseException]()

    def job() -> None:
        try:
            work(drawn(queue, failures))
        except BaseException as failure:  # the caller's thread raises it
            failures.append(failure)

    helpers = [borrowed() or Helper() for _ in range(min(threads, len(queue)) - 1)]
    for helper in helpers:
        helper.start(job)
    job()
    for helper in helpers:
        wait(helper.ended, failures)
        IDLE.append(helper)
    if failures:
        raise failures[0]


def drawn(queue: deque[Task], failures: list[BaseException]) -> Iterator[Task]:
    while queue and not failures:
        with suppress(IndexError):  # another thread may have taken the last one
            yield queue.popleft()


def wait(end: Lock, failures: list[BaseException]) -> None:
    """Wait for a helper whatever happens: Ctrl-C stops the drawing of tasks, not the waiting."""
    while True:
        try:
            end.acquire()
        except BaseException as failure:  # raised when all have ended
            failures.append(failure)
        else:
            return
