"""Run tasks in parallel on the caller's thread and on the threads of a pool.

While several of our threads call the BLAS in parallel, it uses a single thread per call.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from attn_exp import processes
from attn_exp.processes import usable_cores

Task = TypeVar("Task")
MOST = 64
"""Maximum number of threads in the pool; each is started on demand."""
CPU = processes.processor_asker()
"""A function that returns the processor that the calling thread runs on; None if the system cannot tell."""


def default_threads() -> int:
    """Return the number of usable cores, or 1 in a worker process, because other workers use the other cores."""
    return 1 if multiprocessing.parent_process() is not None else usable_cores()


class Holder:
    """The process-wide limit of one BLAS thread.

    A BLAS has one thread count for the whole process, so overlapping calls share one limit: the first call sets it, and
    the last call restores the old count. `calls` is the number of calls under way. `busy` is the number of threads that
    work for all these calls, so that concurrent calls share the cores.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.blas: Any = None
        self.limiter: Any = None
        self.calls = self.busy = 0

    @contextmanager
    def one_thread(self, wanted: int, insist: bool = False) -> Iterator[int]:
        """Limit every BLAS to one thread per call, and yield how many threads may call it in parallel.

        A caller that insists gets the `wanted` number. Any other caller gets no more threads than other calls leave
        cores free, but at least one.
        """
        with self.lock:
            if self.calls == 0:
                self.blas = self.blas or ThreadpoolController().select(user_api="blas")
                self.limiter = self.blas.limit(limits=1)
            granted = wanted if insist else max(1, min(wanted, default_threads() - self.busy))
            self.calls += 1
            self.busy += granted
        try:
            yield granted
        finally:
            with self.lock:
                self.calls -= 1
                self.busy -= granted
                if self.calls == 0:
                    self.limiter.restore_original_limits()

    def reset_after_fork(self) -> None:
        """Forget all calls in a forked child, where their threads do not exist."""
        self.lock = threading.Lock()
        if self.calls:
            self.limiter.restore_original_limits()
        self.calls = self.busy = 0


HOLDER = Holder()
"""One per process, because it mirrors a setting that the BLAS keeps per process."""
one_blas_thread = HOLDER.one_thread


class Pool:
    """The worker threads of this process, which sleep between calls."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Start again without threads, as a forked child must: the threads of its parent do not exist there."""
        self.threads: list[int] = []
        self.executor = ThreadPoolExecutor(MOST, initializer=self.record_thread)
        self.avoided: int | None = None

    def record_thread(self) -> None:
        self.threads.append(threading.get_native_id())

    def avoid_callers_processor(self) -> None:
        """Keep the pool's threads off the processor that the caller runs on.

        If other processors look busy, as idle processors of a virtual machine do, Linux wakes a thread on the
        processor of the thread that wakes it. Both threads then share one processor for as long as they work.
        """
        processor = CPU() if CPU else None
        if (
            processor is not None
            and processor != self.avoided
            and all(processes.keep_off(processor, thread) for thread in self.threads)
        ):
            self.avoided = processor

    def stop(self) -> None:
        """Stop the threads unless they are at work, so that the process can fork safely."""
        if not HOLDER.calls:
            self.executor.shutdown()
            self.renew()


POOL = Pool()
"""One per process, because threads belong to the process."""

if hasattr(os, "register_at_fork"):  # Windows has no such function
    os.register_at_fork(before=POOL.stop, after_in_child=POOL.renew)
    os.register_at_fork(after_in_child=HOLDER.reset_after_fork)


def run_together(work: Callable[[Iterator[Task]], None], tasks: Iterable[Task], threads: int) -> None:
    """Run `work` on `threads` threads, including the caller's; all take their tasks from one queue.

    The function waits for all threads, and raises the first exception. After an exception, no further task is started.
    """
    queue, failures = deque(tasks), list[BaseException]()

    def job() -> None:
        try:
            work(draw_tasks(queue, failures))
        except BaseException as failure:  # re-raised in the caller's thread
            failures.append(failure)

    helpers = min(threads, len(queue)) - 1
    if helpers:
        POOL.avoid_callers_processor()
    futures = [POOL.executor.submit(job) for _ in range(helpers)]
    job()
    for future in futures:
        if not future.cancel():  # a job that has not started may never start: all threads of the pool may be waiting
            future.result()
    if failures:
        raise failures[0]


def draw_tasks(queue: deque[Task], failures: list[BaseException]) -> Iterator[Task]:
    while queue and not failures:
        with suppress(IndexError):  # another thread may have taken the last one
            yield queue.popleft()
