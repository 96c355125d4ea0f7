"""A line on stderr that says how far a long run is."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import TextIO

PATIENCE = 2.0
"""Seconds without a word."""

REDRAW, EVERY = 0.25, 10.0
"""Seconds between two pictures of the bar on a terminal, and between two lines elsewhere."""

CELLS = 30


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
                self.stream.write(f"\r\x1b[K{self.line(now)}" if self.stream.isatty() else f"{self.line(now)}\n")
                self.stream.flush()

    def end(self) -> None:
        """Finish a variant; after the last one a bar is wiped away."""
        self.tell(1.0)
        self.done, self.share = self.done + 1, 0.0
        if self.done == self.variants and self.shown and self.stream.isatty():
            self.stream.write("\r\x1b[K")
            self.stream.flush()

    def line(self, now: float) -> str:
        """Return how far it is: `blockwise [######......] 40 %, 12 s left`."""
        whole = (self.done + self.share) / self.variants
        filled = round(CELLS * whole)
        left = (now - self.started) * (1 - whole) / max(whole, 1e-9)
        rest = f", {left:.0f} s left" if whole > 0.02 else ""
        return f"{self.name} [{'#' * filled}{'.' * (CELLS - filled)}] {100 * whole:.0f} %{rest}"
