"""A line on stderr that says how far a long run is, or how a sweep goes."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock, Timer
from time import monotonic
from typing import TextIO

from attn_exp.patience import spoken, spoken_time

PATIENCE = 2.0
"""Seconds without a word."""

REDRAW, EVERY = 0.25, 10.0
"""Seconds between two pictures of the bar on a terminal, and between two lines elsewhere."""

PLAIN_LEAST, PLAIN_FIRST, PLAIN_EVERY, PLAIN_SHARE = 1.0, 7.0, 30.0, 0.1
"""Where no terminal is, a sweep writes a line for this share of its points or after so many seconds, the first time
sooner, and never before the least."""

CELLS = 30


def put_line(stream: TextIO, text: str, end: str = "") -> None:
    """Write how far it is: over the line before on a terminal, elsewhere as a line of its own."""
    stream.write(f"\r\x1b[K{text}{end}" if stream.isatty() else f"{text}\n")
    stream.flush()
    spoken()


@dataclass
class Progress:
    """How far the computation of so many variants is; threads may tell it at once.

    On a terminal it is a bar, redrawn in place and gone at the end; elsewhere a plain line every ten seconds.
    """

    variants: int
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    done: int = 0
    share: float = 0.0
    name: str = ""
    started: float = field(default_factory=monotonic)
    shown: float = 0.0
    lock: Lock = field(default_factory=Lock)

    def begin(self, name: str) -> None:
        """Start a variant."""
        self.name, self.share = name, 0.0

    def tell(self, share: float) -> None:
        """Take in which part of the variant is done, and show it if it is time."""
        with self.lock:
            self.share = max(self.share, share)
            now, wait = monotonic(), REDRAW if self.stream.isatty() else EVERY
            if now - self.started >= PATIENCE and (not self.shown or now - self.shown >= wait):
                self.shown = now
                put_line(self.stream, self.line(now))

    def end(self) -> None:
        """Finish a variant; after the last one a bar is wiped away."""
        self.tell(1.0)
        self.done, self.share = self.done + 1, 0.0
        if self.done == self.variants and self.shown and self.stream.isatty():
            put_line(self.stream, "")

    def line(self, now: float) -> str:
        """Return how far it is: `blockwise [######......] 40 %, 12 s left`."""
        whole = (self.done + self.share) / self.variants
        filled = round(CELLS * whole)
        left = (now - self.started) * (1 - whole) / max(whole, 1e-9)
        rest = f", {left:.0f} s left" if whole > 0.02 else ""
        return f"{self.name} [{'#' * filled}{'.' * (CELLS - filled)}] {100 * whole:.0f} %{rest}"


@dataclass
class Patience:
    """Says once that a row waits for code of somebody's own, when that has taken so long that one may wonder.

    It is entered around each part of the work that the code does: `with own.patience:`.
    """

    name: str
    code: str
    seconds: float = EVERY
    has_told: bool = False
    timer: Timer | None = None

    def __enter__(self) -> None:
        if not self.has_told:
            self.timer = Timer(self.seconds, self.tell)
            self.timer.daemon = True  # it keeps no process that is to end
            self.timer.start()

    def __exit__(self, *raised: object) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def tell(self) -> None:
        """Say it, on stderr."""
        self.has_told = True
        with suppress(OSError, ValueError, AttributeError):  # somebody closed it
            put_line(sys.stderr, f"attn_exp: {self.name} has waited {self.seconds:g} s for {self.code}", "\n")


@dataclass
class PointProgress:
    """Counts of points: all, those that were there before, and those done since; redrawn in place on a terminal."""

    points: int
    cached: int = 0
    done: int = 0
    failed: int = 0
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    started: float = field(default_factory=monotonic)
    shown: float = 0.0
    shown_share: float = 0.0

    def add(self, done: int, failed: int) -> None:
        """Count finished points and show the line if it is time."""
        self.done += done
        self.failed += failed
        self.show()

    @property
    def share(self) -> float:
        """The finished part of all points."""
        return (self.cached + self.done) / max(1, self.points)

    def show(self, last: bool = False) -> None:
        """Redraw on a terminal four times a second; elsewhere write a line each tenth of the way or half a minute."""
        now = monotonic()
        if self.stream.isatty():
            if last or now - self.shown >= REDRAW:
                put_line(self.stream, self.line(), "\n" * last)
                self.shown = now
        elif last or self.due(now - (self.shown or self.started)):
            put_line(self.stream, self.line())
            self.shown, self.shown_share = now, self.share

    def due(self, quiet: float) -> bool:
        """Say whether a plain line is due after so many quiet seconds."""
        most = PLAIN_EVERY if self.shown else PLAIN_FIRST
        return quiet >= PLAIN_LEAST and (self.share - self.shown_share >= PLAIN_SHARE or quiet >= most)

    def line(self) -> str:
        """Return what has been done, how fast, and what is left."""
        rate = self.done / max(1e-9, monotonic() - self.started)
        left = self.points - self.cached - self.done
        parts = [f"{self.cached + self.done:,} of {self.points:,} points"]
        if self.done:
            parts.append(f"{rate:,.0f}/s")
        if left and self.done:
            parts.append(f"{spoken_time(left / rate)} left")
        return ", ".join([*parts, f"{self.failed:,} failed", f"{self.cached:,} cached"])
