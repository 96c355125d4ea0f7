"""Several threads of our own, with the BLAS held to one thread each."""

from __future__ import annotations

import _thread
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Task = TypeVar("Task")


def usable_cores() -> int:
    """Return the number of cores this process may run on, which a container or `taskset` can make few."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_threads() -> int:
    """Return the usable cores, or 1 inside a worker of a process pool, whose siblings keep the other cores busy."""
    return 1 if multiprocessing.parent_process() is not None else usable_cores()


@dataclass
class Holder:
    """Who holds the BLAS to one thread.

    A BLAS has one thread count for the whole process, so calls that overlap must share one hold: the first sets
    it, the last restores it. `busy` counts the threads at work in all calls, so that calls made from several
    threads at once share the cores.
    """

    lock: Lock = field(default_factory=Lock)
    controller: ThreadpoolController | None = None
    limiter: Any = None
    calls: int = 0
    busy: int = 0

    def enter(self, wanted: int, insist: bool) -> int:
        """Hold the BLAS and return how many threads this call gets: `wanted`, or fewer where others are at work."""
        with self.lock:
            if self.calls == 0:
                self.controller = self.controller or ThreadpoolController()
                self.limiter = self.controller.limit(limits=1, user_api="blas")
            granted = wanted if insist else max(1, min(wanted, default_threads() - self.busy))
            self.calls += 1
            self.busy += granted
            return granted

    def leave(self, granted: int) -> None:
        """Give the threads back; the last call restores the BLAS."""
        with self.lock:
            self.calls -= 1
            self.busy -= granted
            if self.calls == 0:
                self.limiter.restore_original_limits()

    def forked(self) -> None:
        """Start anew in a forked child, where the threads that held the BLAS do not exist."""
        self.lock = Lock()
        if self.calls:
            self.limiter.restore_original_limits()
        self.calls = self.busy = 0


HOLDER = Holder()
"""The only state of a module here: it mirrors a setting that the BLAS itself keeps per process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=HOLDER.forked)


@contextmanager
def one_blas_thread(wanted: int, insist: bool = False) -> Iterator[int]:
    """Hold every BLAS to one thread per call and yield how many threads may call it at once.

    That is `wanted`, or, where the caller does not insist, what other calls leave of the cores, but at least one.
    """
    granted = HOLDER.enter(wanted, insist)
    try:
        yield granted
    finally:
        HOLDER.leave(granted)


def together(work: Callable[[Iterator[Task]], None], tasks: Iterable[Task], threads: int) -> None:
    """Run `work` on `threads` threads, the caller's among them; each draws its next task from one queue.

    The threads are started anew each time (about 30 microseconds each), so nothing is left for a fork to break.
    Waits for all and raises the first exception; after one, no further task is drawn.
    """
    queue, failures = deque(tasks), list[BaseException]()

    def life(end: Lock | None = None) -> None:
        try:
            work(drawn(queue, failures))
        except BaseException as failure:  # the caller's thread raises it
            failures.append(failure)
        finally:
            if end:
                end.release()

    ends = [started(life) for _ in range(min(threads, len(queue)) - 1)]
    life()
    for end in ends:
        wait(end, failures)
    if failures:
        raise failures[0]


def drawn(queue: deque[Task], failures: list[BaseException]) -> Iterator[Task]:
    while queue and not failures:
        with suppress(IndexError):  # another thread may have taken the last one
            yield queue.popleft()


def started(life: Callable[[Lock], None]) -> Lock:
    """Start a thread and return a lock that it releases at its end; `threading.Thread` takes three times as long."""
    end = Lock()
    end.acquire()
    _thread.start_new_thread(life, (end,))
    return end


def wait(end: Lock, failures: list[BaseException]) -> None:
    """Wait for a thread whatever happens: Ctrl-C stops the drawing of tasks, not the waiting."""
    while True:
        try:
            end.acquire()
        except BaseException as failure:  # raised when all threads have ended
            failures.append(failure)
        else:
            return
