"""Ending a command early: SIGTERM raises `Stopped` in the main thread, as Ctrl-C raises KeyboardInterrupt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(KeyboardInterrupt):
    """Raised by SIGTERM."""


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return the exit code after an interrupt: 128 plus the number of the signal."""
    return 128 + (signal.SIGTERM if isinstance(interrupt, Stopped) else signal.SIGINT)


def stop(number: int, frame: FrameType | None) -> None:
    raise Stopped


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM raise `Stopped` in the block, so that unfinished work is undone on the way out."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread can set signal handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
