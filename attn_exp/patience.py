"""What a command that takes long says of itself: nothing at first, then where it is, and how far, on stderr.

A thread looks from time to time where the main thread is; the work itself knows nothing of it and pays nothing for it.
Where a signal asks the command to end while the main thread is inside one long call of a library, which no Python
interrupts, the thread sends it once more, and then ends the command in its place.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from types import FrameType
from typing import NoReturn

from attn_exp import stopping, system

FIRST, LATER = 8.0, 60.0
"""Seconds without a word until the first line, and until each one after it."""

DEAF = 1.5
"""Seconds that the main thread has to hear a signal, and as many again once it was sent anew."""

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
    now, far = monotonic(), ""
    if HEARD.whole:
        left = (now - HEARD.began) * (HEARD.whole - HEARD.done) / HEARD.done if HEARD.done else 0.0
        far = f", {HEARD.done:,} of {HEARD.whole:,}" + (f", about {spoken_time(left)} left" if left else "")
    return f"attn_exp: {where(frame)}{far}; {spoken_time(seconds)} so far, Ctrl-C ends it"


class Watch:
    """The thread that speaks for the main thread of a process, and hears signals that this one is deaf to."""

    def __init__(self, main: int) -> None:
        self.main, self.started = main, monotonic()
        self.thread: threading.Thread | None = None
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.writing, False)

    def begin(self) -> None:
        """Start the thread; where the system has none left, nothing is said."""
        with suppress(RuntimeError):
            self.thread = threading.Thread(target=self.look, daemon=True)
            self.thread.start()

    def end(self) -> None:
        """End the thread, so that a process forks without it."""
        if self.thread is not None:
            with suppress(OSError):
                os.write(self.writing, b"\0")
            self.thread.join()
            self.thread = None

    def look(self) -> None:
        """Wait, and speak when nothing was heard for long; a byte says that a signal came, or zero that all is over."""
        wait, again = FIRST, False
        while True:
            quiet = monotonic() - max(self.started, HEARD.last)
            if quiet >= wait:
                self.speak()
                quiet, wait = 0.0, LATER
            heard = select.select([self.reading], [], [], wait - quiet)[0]
            number = os.read(self.reading, 1)[0] if heard else None
            if number == 0:
                return
            if number in system.ending_signals() and not self.answered():
                if again:
                    end_deaf(number)
                again = True
                system.send_to_main_thread(number)  # it may have come just before the main thread began to wait

    def answered(self) -> bool:
        """Say whether the main thread hears a signal in time, or the command is over by then."""
        end = monotonic() + DEAF
        while not stopping.ASKED.number and monotonic() < end:
            if select.select([self.reading], [], [], 0.05)[0]:
                return True
        return bool(stopping.ASKED.number)

    def speak(self) -> None:
        """Say where the main thread is."""
        spoken()
        with suppress(OSError, ValueError):  # nobody may listen any more
            text = line(sys._current_frames().get(self.main), monotonic() - self.started)
            print(text, file=sys.stderr, flush=True)


def end_deaf(number: int) -> NoReturn:
    """End the process in the place of a main thread that is inside a call of a library."""
    with suppress(OSError, ValueError):
        print(STOPPED, file=sys.stderr, flush=True)
    os._exit(128 + number)


STOPPED = "attn_exp: stopped before it was done"


@contextmanager
def saying_where() -> Iterator[None]:
    """Let the command in the block say where it is when it takes long; where no thread can wait for a pipe, not."""
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        yield
        return
    watch = Watch(threading.get_ident())
    HEARD.last, HEARD.whole = 0.0, 0
    before = signal.set_wakeup_fd(watch.writing, warn_on_full_buffer=False)
    WATCHES.append(watch)
    watch.begin()
    try:
        yield
    finally:
        WATCHES.remove(watch)
        signal.set_wakeup_fd(before)
        watch.end()
        os.close(watch.reading)
        os.close(watch.writing)


WATCHES: list[Watch] = []
"""The watch of this process, if it has one: a fork finds it here."""


def before_fork() -> None:
    """End the thread of each watch: a fork would not have it."""
    for watch in WATCHES:
        watch.end()


def after_fork_here() -> None:
    """Let each watch go on in the process that forked."""
    for watch in WATCHES:
        watch.begin()


def after_fork_there() -> None:
    """Leave a child without a watch: it would speak with the voice of its parent, and read its pipe."""
    if WATCHES:
        WATCHES.clear()
        signal.set_wakeup_fd(-1)


system.at_fork(before=before_fork, after=after_fork_there, here=after_fork_here)
