"""How a command ends before it is done: SIGTERM raises `Stopped` where the command is, as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(KeyboardInterrupt):
    """SIGTERM asked the command to end."""


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return what a command exits with that was interrupted: 128 and the number of the signal."""
    return 128 + (signal.SIGTERM if isinstance(interrupt, Stopped) else signal.SIGINT)


def stop(number: int, frame: FrameType | None) -> None:
    raise Stopped


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM raise `Stopped` in the block, so that whatever is half done is undone on the way out."""
    if threading.current_thread() is not threading.main_thread():  # where Python takes no signals
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
