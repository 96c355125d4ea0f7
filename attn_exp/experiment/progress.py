"""A line on stderr that says how far a long run is, or how a sweep goes."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from time import monotonic
from typing import TextIO

from attn_exp.patience import spoken, spoken_time

PATIENCE = 2.0
"""Seconds without a word."""

REDRAW, EVERY = 0.25, 10.0
"""Seconds between two lines: on a terminal, where each takes the place of the one before, and elsewhere."""

CELLS = 30


@dataclass
class Line:
    """A line that is written now and then: over itself on a terminal, elsewhere below the one before."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    started: float = field(default_factory=monotonic)
    shown: float = 0.0

    def is_due(self) -> bool:
        """Say whether it is time for the next line."""
        wait = REDRAW if self.stream.isatty() else EVERY
        return monotonic() >= (self.shown + wait if self.shown else self.started + PATIENCE)

    def put(self, text: str, end: str = "") -> None:
        """Write the line."""
        self.shown = monotonic()
        self.stream.write(f"\r\x1b[K{text}{end}" if self.stream.isatty() else f"{text}\n")
        self.stream.flush()
        spoken()


@dataclass
class Progress:
    """How far the computation of so many variants is; threads may tell it at once. A bar is wiped away at the end."""

    variants: int
    line: Line = field(default_factory=Line)
    done: int = 0
    share: float = 0.0
    name: str = ""

    def begin(self, name: str) -> None:
        """Start a variant."""
        self.name, self.share = name, 0.0

    def tell(self, share: float) -> None:
        """Take in which part of the variant is done, and show it if it is time."""
        self.share = max(self.share, share)
        if self.line.is_due():
            self.line.put(self.text())

    def end(self) -> None:
        """Finish a variant."""
        self.tell(1.0)
        self.done, self.share = self.done + 1, 0.0
        if self.done == self.variants and self.line.shown and self.line.stream.isatty():
            self.line.put("")

    def text(self) -> str:
        """Return how far it is: `blockwise [######......] 40 %, 12 s left`."""
        whole = (self.done + self.share) / self.variants
        filled = round(CELLS * whole)
        left = (monotonic() - self.line.started) * (1 - whole) / max(whole, 1e-9)
        rest = f", {left:.0f} s left" if whole > 0.02 else ""
        return f"{self.name} [{'#' * filled}{'.' * (CELLS - filled)}] {100 * whole:.0f} %{rest}"


@dataclass
class PointProgress:
    """Counts of points of a sweep: all, those that were there before, and those done since."""

    points: int
    cached: int = 0
    done: int = 0
    failed: int = 0
    line: Line = field(default_factory=Line)

    def add(self, done: int, failed: int) -> None:
        """Count finished points and show the line if it is time."""
        self.done += done
        self.failed += failed
        self.show()

    def show(self, last: bool = False) -> None:
        """Write the line if it is time, and in any case the last one."""
        if last or self.line.is_due():
            self.line.put(self.text(), "\n" * last)

    def text(self) -> str:
        """Return what has been done, how fast, and what is left."""
        rate = self.done / max(1e-9, monotonic() - self.line.started)
        left = self.points - self.cached - self.done
        speed = f", {rate:,.0f}/s" if self.done else ""
        rest = f", {spoken_time(left / rate)} left" if left and self.done else ""
        counts = f"{self.failed:,} failed, {self.cached:,} cached"
        return f"{self.points - left:,} of {self.points:,} points{speed}{rest}, {counts}"
