"""Tasks worked on side by side, by the caller's thread and helpers that wait between calls.

The BLAS is held to one thread per call as long as threads of our own call it side by side.
"""

from __future__ import annotations

import _thread
import multiprocessing
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from attn_exp import system
from attn_exp.system import usable_cores


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
    libraries: list[Any] | None = None
    before: list[int] = field(default_factory=list)
    calls: int = 0
    busy: int = 0

    def enter(self, wanted: int, insist: bool) -> int:
        """Hold the BLAS and return how many threads this call gets: `wanted`, or fewer where others are at work."""
        with self.lock:
            if self.calls == 0:
                self.hold()
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
                self.restore()

    def hold(self) -> None:
        if self.libraries is None:
            self.libraries = ThreadpoolController().select(user_api="blas").lib_controllers
        self.before = [library.get_num_threads() for library in self.libraries]
        for library in self.libraries:
            library.set_num_threads(1)

    def restore(self) -> None:
        for library, count in zip(self.libraries or (), self.before, strict=True):
            library.set_num_threads(count)

    def forked(self) -> None:
        """Start anew in a forked child, where the threads that held the BLAS do not exist."""
        self.lock = Lock()
        if self.calls:
            self.restore()
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


Task = TypeVar("Task")

CPU = system.processor_asker()
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
        here = CPU() if CPU else None
        if here is None or here == self.shunned or self.number is None:
            return
        if system.keep_off(here, self.number):
            self.shunned = here


IDLE: deque[Helper] = deque()
"""Helpers with nothing to do: threads belong to the process, and so does what remembers them."""


def dismiss() -> None:
    """End the idle helpers, so that a process forks with no thread of ours."""
    while helper := borrowed():
        helper.start(None)
        helper.ended.acquire()


def borrowed() -> Helper | None:
    """Return a helper that waits for work, or None."""
    with suppress(IndexError):
        return IDLE.pop()
    return None


system.at_fork(before=dismiss, after=IDLE.clear)


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
    """Yield tasks that no other thread has taken, until there are none, or one of them has failed."""
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
