"""Ending a command early: SIGTERM raises `Stopped` in the main thread, as Ctrl-C raises KeyboardInterrupt."""

from __future__ import annotations

import signal
from types import FrameType


class Stopped(KeyboardInterrupt):
    """Raised by SIGTERM."""


def stop(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM, so that unfinished work is undone on the way out."""
    raise Stopped


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return the exit code after an interrupt: 128 plus the number of the signal."""
    return 128 + (signal.SIGTERM if isinstance(interrupt, Stopped) else signal.SIGINT)
