"""Progress lines on stderr for a command that takes long: what it is doing, and how far it is.

A thread looks at the main thread's stack from time to time; the work itself knows nothing of it and pays nothing.
"""

from __future__ import annotations

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

PLACES = {
    "config": "settings are read",
    "problem": "the input is read or drawn",
    "forms": "attention is computed",
    "reference": "the reference is computed, a number at a time",
    "experiment": "variants are compared",
    "diagnosis": "answers are compared with known mistakes",
    "report": "pages and figures are made",
    "runs": "files are read or written",
    "sweeps": "the sweep is under way",
}
"""What a command is doing while the main thread is in a room."""


@dataclass
class Spoken:
    """When this process last printed a line; there is one stderr."""

    last: float = 0.0


HEARD = Spoken()


def spoken() -> None:
    """Record that a line was printed just now."""
    HEARD.last = monotonic()


def spoken_time(seconds: float) -> str:
    """Format a duration for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:,.0f} days"


def where(frame: FrameType | None) -> str:
    """Describe what a thread is doing, from the innermost room on its stack."""
    while frame is not None:
        package, *rooms = str(frame.f_globals.get("__name__")).split(".")
        if package == "attn_exp" and rooms and rooms[0] in PLACES:
            return PLACES[rooms[0]]
        frame = frame.f_back
    return "at work"


@contextmanager
def saying_where() -> Iterator[None]:
    """Print progress lines while the command in the block takes long."""
    main, over, started = threading.get_ident(), threading.Event(), monotonic()

    def speak() -> None:
        pause = FIRST
        while not over.wait(pause):
            if monotonic() - HEARD.last >= pause:
                place, pause = where(sys._current_frames().get(main)), LATER
                with suppress(OSError, ValueError):  # stderr may be closed
                    so_far = spoken_time(monotonic() - started)
                    print(f"attn_exp: {place}; {so_far} so far, Ctrl-C ends it", file=sys.stderr, flush=True)

    threading.Thread(target=speak, daemon=True).start()
    try:
        yield
    finally:
        over.set()
