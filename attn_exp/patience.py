"""What a command that takes long says of itself on stderr: nothing at first, then where it is, and how far.

A thread looks from time to time where the main thread is; the work itself knows nothing of it and pays nothing for it.
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
"""Seconds without a word until the first line, and until each one after it."""

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
"""What a command does while the main thread is in a room, or in one module of it."""


@dataclass
class Heard:
    """What a process has said of its work: when it last did, and how far a long loop is; there is one stderr."""

    last: float = 0.0
    done: int = 0
    whole: int = 0
    began: float = 0.0


HEARD = Heard()


def spoken() -> None:
    """Take in that something was said just now."""
    HEARD.last = monotonic()


def count(done: int, whole: int) -> None:
    """Take in how far a long loop is; at its end, `whole` of them, nothing is counted any more."""
    if done == 0:
        HEARD.began = monotonic()
    HEARD.done, HEARD.whole = done, whole if done < whole else 0


def spoken_time(seconds: float) -> str:
    """Write a time as a reader says it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:,.0f} days"


def where(frame: FrameType | None) -> str:
    """Say what a thread does, from the deepest module of the package that it is in."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        while name:
            if name in PLACES:
                return PLACES[name]
            name = name.rpartition(".")[0]
        frame = frame.f_back
    return "at work"


def line(frame: FrameType | None, seconds: float) -> str:
    """Return the line about a thread after so many seconds."""
    far = ""
    if HEARD.whole and HEARD.done:
        left = (monotonic() - HEARD.began) * (HEARD.whole - HEARD.done) / HEARD.done
        far = f", {HEARD.done:,} of {HEARD.whole:,}, about {spoken_time(left)} left"
    return f"attn_exp: {where(frame)}{far}; {spoken_time(seconds)} so far, Ctrl-C ends it"


@contextmanager
def saying_where() -> Iterator[None]:
    """Let the command in the block say where it is when it takes long."""
    main, over, started = threading.get_ident(), threading.Event(), monotonic()

    def speak() -> None:
        pause = FIRST
        while not over.wait(max(0.01, HEARD.last + pause - monotonic())):
            if monotonic() - HEARD.last >= pause:
                with suppress(OSError, ValueError):  # nobody may listen any more
                    text = line(sys._current_frames().get(main), monotonic() - started)
                    print(text, file=sys.stderr, flush=True)
                HEARD.last, pause = monotonic(), LATER

    HEARD.last, HEARD.whole = started, 0
    threading.Thread(target=speak, daemon=True).start()
    try:
        yield
    finally:
        over.set()
