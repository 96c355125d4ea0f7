"""A progress line on stderr for long runs and sweeps."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from time import monotonic
from typing import TextIO

from attn_exp.processes import HEARD, format_duration

PATIENCE, REDRAW, EVERY = 2.0, 0.25, 10.0
"""Seconds before the first line, between redraws on a terminal, and between lines elsewhere."""

CELLS = 30


@dataclass
class Line:
    """A line written now and then: in place on a terminal, elsewhere below the one before."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    started: float = field(default_factory=monotonic)
    shown: float = 0.0

    def is_due(self) -> bool:
        wait = REDRAW if self.stream.isatty() else EVERY
        return monotonic() >= (self.shown + wait if self.shown else self.started + PATIENCE)

    def put(self, text: str, end: str = "") -> None:
        self.shown = monotonic()
        self.stream.write(f"\r\x1b[K{text}{end}" if self.stream.isatty() else f"{text}\n")
        self.stream.flush()
        HEARD.set()


@dataclass
class Progress:
    """Progress over this many variants, safe to update from threads; the bar is erased at the end."""

    variants: int
    line: Line = field(default_factory=Line)

    def tell(self, done: int, name: str, share: float) -> None:
        """Show that `done` variants are complete, and this share of the one of that name."""
        whole = (done + share) / self.variants
        if whole >= 1:
            if self.line.shown and self.line.stream.isatty():
                self.line.put("")
        elif self.line.is_due():
            left = (monotonic() - self.line.started) * (1 - whole) / max(whole, 1e-9)
            bar = ("#" * round(CELLS * whole)).ljust(CELLS, ".")
            self.line.put(f"{name} [{bar}] {100 * whole:.0f} %{f', {left:.0f} s left' if whole > 0.02 else ''}")


@dataclass
class PointProgress:
    """Counts of the points of a sweep: all, cached, and done since."""

    points: int
    cached: int = 0
    done: int = 0
    failed: int = 0
    line: Line = field(default_factory=Line)

    def add(self, done: int, failed: int) -> None:
        self.done, self.failed = self.done + done, self.failed + failed
        self.show()

    def show(self, last: bool = False) -> None:
        if not last and not self.line.is_due():
            return
        rate = self.done / max(1e-9, monotonic() - self.line.started)
        left = self.points - self.cached - self.done
        speed = f", {rate:,.0f}/s" if self.done else ""
        rest = f", {format_duration(left / rate)} left" if left and self.done else ""
        counts = f"{self.failed:,} failed, {self.cached:,} cached"
        self.line.put(f"{self.points - left:,} of {self.points:,} points{speed}{rest}, {counts}", "\n" * last)
