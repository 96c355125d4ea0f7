"""One line on stderr that says how a sweep goes."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TextIO

REDRAW = 0.25
PLAIN_LEAST, PLAIN_EVERY, PLAIN_SHARE = 1.0, 30.0, 0.1


@dataclass
class Progress:
    """Counts of points: all, those that were there before, and those done since; redrawn in place on a terminal."""

    points: int
    cached: int = 0
    done: int = 0
    failed: int = 0
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    started: float = field(default_factory=time.monotonic)
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
        now = time.monotonic()
        if self.stream.isatty():
            if last or now - self.shown >= REDRAW:
                self.stream.write(f"\r\x1b[K{self.line()}" + "\n" * last)
                self.stream.flush()
                self.shown = now
        elif last or self.due(now - (self.shown or self.started)):
            self.stream.write(self.line() + "\n")
            self.stream.flush()
            self.shown, self.shown_share = now, self.share

    def due(self, quiet: float) -> bool:
        """Say whether a plain line is due after so many quiet seconds."""
        return quiet >= PLAIN_LEAST and (self.share - self.shown_share >= PLAIN_SHARE or quiet >= PLAIN_EVERY)

    def line(self) -> str:
        """Return what has been done, how fast, and what is left."""
        rate = self.done / max(1e-9, time.monotonic() - self.started)
        left = self.points - self.cached - self.done
        parts = [f"{self.cached + self.done:,} of {self.points:,} points"]
        if self.done:
            parts.append(f"{rate:,.0f}/s")
        if left and self.done:
            parts.append(f"{span(left / rate)} left")
        return ", ".join([*parts, f"{self.failed:,} failed", f"{self.cached:,} cached"])


def span(seconds: float) -> str:
    """Write a time as a reader says it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
