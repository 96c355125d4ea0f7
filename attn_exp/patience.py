"""Long-running commands: progress lines on stderr, and SIGTERM, which ends a command like Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from types import FrameType

FIRST, LATER = 8.0, 60.0
"""Seconds of silence before the first progress line, and before each later one."""

STOPPED = "attn_exp: stopped before it was done"


class Stopped(KeyboardInterrupt):
    """Raised by SIGTERM."""


def stop(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM, so that unfinished work is undone on the way out."""
    raise Stopped


def exit_code(interrupt: KeyboardInterrupt) -> int:
    return 128 + (signal.SIGTERM if isinstance(interrupt, Stopped) else signal.SIGINT)


@dataclass
class Spoken:
    """When this process last printed a line; there is one stderr."""

    last: float = 0.0


HEARD = Spoken()


def spoken() -> None:
    """Record that a line was printed just now."""
    HEARD.last = monotonic()


def spoken_time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:,.0f} days"


@contextmanager
def saying_so() -> Iterator[None]:
    over, started = threading.Event(), monotonic()

    def speak() -> None:
        pause = FIRST
        while not over.wait(pause):
            if monotonic() - HEARD.last >= pause:
                pause = LATER
                with suppress(OSError, ValueError):  # stderr may be closed
                    so_far = spoken_time(monotonic() - started)
                    print(f"attn_exp: at work, {so_far} so far; Ctrl-C ends it", file=sys.stderr, flush=True)

    threading.Thread(target=speak, daemon=True).start()
    try:
        yield
    finally:
        over.set()
