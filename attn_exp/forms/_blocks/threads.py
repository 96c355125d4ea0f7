"""Tasks worked on side by side, by the caller's thread and those of a pool.

The BLAS is held to one thread per call as long as threads of our own call it side by side.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from attn_exp import system
from attn_exp.system import usable_cores

Task = TypeVar("Task")
MOST = 64
"""Threads of the pool; each is started when it is first needed."""
CPU = system.processor_asker()
"""Tells on which processor the calling thread runs, where the system's library can."""


def default_threads() -> int:
    """Return the usable cores, or 1 inside a worker of a process pool, whose siblings keep the other cores busy."""
    return 1 if multiprocessing.parent_process() is not None else usable_cores()


class Holder:
    """Who holds the BLAS to one thread.

    A BLAS has one thread count for the whole process, so calls that overlap must share one hold: the first sets
    it, the last restores it. `busy` counts the threads at work in all calls, so that calls made from several
    threads at once share the cores.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.blas: Any = None
        self.hold: Any = None
        self.calls = self.busy = 0

    def enter(self, wanted: int, insist: bool) -> int:
        """Hold the BLAS and return how many threads this call gets: `wanted`, or fewer where others are at work."""
        with self.lock:
            if self.calls == 0:
                self.blas = self.blas or ThreadpoolController().select(user_api="blas")
                self.hold = self.blas.limit(limits=1)
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
                self.hold.restore_original_limits()

    def forked(self) -> None:
        """Start anew in a forked child, where the threads that held the BLAS do not exist."""
        self.lock = threading.Lock()
        if self.calls:
            self.hold.restore_original_limits()
        self.calls = self.busy = 0


HOLDER = Holder()
"""It mirrors a setting that the BLAS itself keeps per process, and so is one per process."""

system.at_fork(after=HOLDER.forked)


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


class Pool:
    """The threads of this process, which sleep between calls."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin with no thread, as a forked child has to."""
        self.threads: list[int] = []
        self.executor = ThreadPoolExecutor(MOST, initializer=self.note)
        self.shunned: int | None = None

    def note(self) -> None:
        self.threads.append(threading.get_native_id())

    def keep_away(self) -> None:
        """Keep its threads off the processor that the caller runs on.

        Linux wakes a thread beside the one that wakes it while other processors look busy, and those of a virtual
        machine look so when they sleep: both threads then share one processor for as long as they work.
        """
        here = CPU() if CPU else None
        if here is not None and here != self.shunned and all(system.keep_off(here, one) for one in self.threads):
            self.shunned = here

    def end(self) -> None:
        """End its threads unless they are at work, so that a process forks with none of ours."""
        if not HOLDER.calls:
            self.executor.shutdown()
            self.renew()


POOL = Pool()
"""Threads belong to the process, and so does what remembers them."""

system.at_fork(before=POOL.end, after=POOL.renew)


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

    helpers = min(threads, len(queue)) - 1
    if helpers:
        POOL.keep_away()
    futures = [POOL.executor.submit(job) for _ in range(helpers)]
    job()
    for future in futures:
        if not future.cancel():  # within a call within a call, all threads may be waiting
            future.result()
    if failures:
        raise failures[0]


def drawn(queue: deque[Task], failures: list[BaseException]) -> Iterator[Task]:
    """Yield tasks that no other thread has taken, until there are none, or one of them has failed."""
    while queue and not failures:
        with suppress(IndexError):  # another thread may have taken the last one
            yield queue.popleft()
