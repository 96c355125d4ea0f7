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
    "attn_exp.config": "settings are read",
    "attn_exp.problem": "the input is read or drawn",
    "attn_exp.forms": "attention is computed",
    "attn_exp.reference": "the reference is computed, a number at a time",
    "attn_exp.experiment": "variants are compared",
    "attn_exp.experiment.checks": "check= is computed",
    "attn_exp.diagnosis": "answers are held against known mistakes",
    "attn_exp.report": "pages and figures are made",
    "attn_exp.runs": "files are read or written",
    "attn_exp.runs.classroom": "sheets are made or graded",
    "attn_exp.sweeps": "the sweep is under way",
    "attn_exp.sweeps.expand": "the points of the sweep are laid out",
}
"""What a command is doing while the main thread is in a room, or in one module of it."""


@dataclass
class Heard:
    """Progress of this process: when it last printed a line, and how far a long loop is; there is one stderr."""

    last: float = 0.0
    done: int = 0
    whole: int = 0
    began: float = 0.0


HEARD = Heard()


def spoken() -> None:
    """Record that a line was printed just now."""
    HEARD.last = monotonic()


def count(done: int, whole: int) -> None:
    """Record how far a long loop is; reaching `whole` ends the count."""
    if done == 0:
        HEARD.began = monotonic()
    HEARD.done, HEARD.whole = done, whole if done < whole else 0


def spoken_time(seconds: float) -> str:
    """Format a duration for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:,.0f} days"


def where(frame: FrameType | None) -> str:
    """Describe what a thread is doing, from the innermost module on its stack that has a description."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        while name:
            if name in PLACES:
                return PLACES[name]
            name = name.rpartition(".")[0]
        frame = frame.f_back
    return "at work"


def line(frame: FrameType | None, seconds: float) -> str:
    """Format the progress line after this many seconds."""
    far = ""
    if HEARD.whole and HEARD.done:
        left = (monotonic() - HEARD.began) * (HEARD.whole - HEARD.done) / HEARD.done
        far = f", {HEARD.done:,} of {HEARD.whole:,}, about {spoken_time(left)} left"
    return f"attn_exp: {where(frame)}{far}; {spoken_time(seconds)} so far, Ctrl-C ends it"


@contextmanager
def saying_where() -> Iterator[None]:
    """Print progress lines while the command in the block takes long."""
    main, over, started = threading.get_ident(), threading.Event(), monotonic()

    def speak() -> None:
        pause = FIRST
        while not over.wait(max(0.01, HEARD.last + pause - monotonic())):
            if monotonic() - HEARD.last >= pause:
                with suppress(OSError, ValueError):  # stderr may be closed
                    text = line(sys._current_frames().get(main), monotonic() - started)
                    print(text, file=sys.stderr, flush=True)
                HEARD.last, pause = monotonic(), LATER

    HEARD.last, HEARD.whole = started, 0
    threading.Thread(target=speak, daemon=True).start()
    try:
        yield
    finally:
        over.set()
