"""The BLAS held to one thread per call, while threads of our own call it side by side."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

from attn_exp.machine import usable_cores


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
