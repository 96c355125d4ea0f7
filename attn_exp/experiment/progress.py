"""A line on stderr that says how far a long run is, or how a sweep goes."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from time import monotonic
from typing import TextIO

from attn_exp.patience import spoken, spoken_time

PATIENCE, REDRAW, EVERY = 2.0, 0.25, 10.0
"""Seconds before the first line, and between two: on a terminal, where each replaces the one before, and elsewhere."""

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
            whole = (self.done + self.share) / self.variants
            left = (monotonic() - self.line.started) * (1 - whole) / max(whole, 1e-9)
            bar = ("#" * round(CELLS * whole)).ljust(CELLS, ".")
            self.line.put(f"{self.name} [{bar}] {100 * whole:.0f} %{f', {left:.0f} s left' if whole > 0.02 else ''}")

    def end(self) -> None:
        """Finish a variant."""
        self.tell(1.0)
        self.done, self.share = self.done + 1, 0.0
        if self.done == self.variants and self.line.shown and self.line.stream.isatty():
            self.line.put("")


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
        self.done, self.failed = self.done + done, self.failed + failed
        self.show()

    def show(self, last: bool = False) -> None:
        """Write what has been done, how fast, and what is left, if it is time, and in any case the last one."""
        if not last and not self.line.is_due():
            return
        rate = self.done / max(1e-9, monotonic() - self.line.started)
        left = self.points - self.cached - self.done
        speed = f", {rate:,.0f}/s" if self.done else ""
        rest = f", {spoken_time(left / rate)} left" if left and self.done else ""
        counts = f"{self.failed:,} failed, {self.cached:,} cached"
        self.line.put(f"{self.points - left:,} of {self.points:,} points{speed}{rest}, {counts}", "\n" * last)
