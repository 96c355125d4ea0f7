"""Long runs: whether they fit into memory, estimated before anything is drawn, and a line on how far they are."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import NamedTuple, TextIO

from attn_exp import forms
from attn_exp.config.inputs import Draw
from attn_exp.config.schema import Config, Variant
from attn_exp.errors import UserError
from attn_exp.problem import drawing, sources
from attn_exp.problem.projections import MATRICES, widths
from attn_exp.processes import OWN_PROGRESS, format_duration

NUMBER, NAME = 8, 150
"""Bytes of a float64, and of the name of a token in memory and on disk."""

SMALL = 1 << 26
"""Bytes below which the free memory is not queried."""

INPUTS, PROJECTIONS = 10, len(MATRICES) + 3
"""Arrays of the size of x that a run holds at once: x, q, k, v, contexts, outputs and write buffers; and arrays of the
size of one projection."""

LISTED = 4
"""How much larger a list of Python floats is than an array; the reference holds W_o as such a list."""

ASKING = ("check", "dtype", "metrics")
"""Settings that compare every variant with whole matrices."""


class Need(NamedTuple):
    """A memory estimate: the bytes, the setting that decides them and its purpose, and a way out."""

    size: int
    setting: str
    purpose: str
    instead: str


def check_drawn(config: Config) -> None:
    """Refuse an x, projections or matrices that would not fit, before anything is drawn.

    Raises:
        UserError: with the size, the free memory, and a way out.
    """
    draws = config.draws or {}
    places = {f"embeddings.{name}": getattr(config.embeddings, name) for name in ("vectors", "q", "k", "v", "weights")}
    places |= {f"draws.{name}": given for name, given in draws.items()}
    refuse_too_large(
        Need(INPUTS * NUMBER * math.prod(given.shape), f"{key}.shape={list(given.shape)}", "", "choose a smaller shape")
        for key, given in places.items()
        if isinstance(given, Draw)
    )
    size = drawing.size(draws["x"]) if "x" in draws else sources.size(config.embeddings)
    if size is not None:
        keys, _ = sources.memory_size(config, size) or size
        matrices = estimate_matrices(config, max(size[0] - config.past, 0), keys)
        refuse_too_large([*estimate_inputs(config, size), matrices])


def estimate_inputs(config: Config, size: tuple[int, int]) -> Iterator[Need]:
    (rows, width), memory = size, sources.memory_size(config, size)
    is_projected = config.projections.source != "none"
    columns = max(widths(config.projections, width).values())
    widest = max(width, columns) if is_projected else width
    vectors, fewer = INPUTS * NUMBER * widest + NAME, "choose fewer tokens"
    yield Need(rows * vectors, f"embeddings.tokens={rows} with d_model={width}", "for its vectors", fewer)
    keys, source = memory or size
    if is_projected:
        joined = any(variant.output_projection for variant in config.variant.values())
        largest = (PROJECTIONS + LISTED * joined) * NUMBER * max(width, source) * columns
        wider = f" with projections of {columns} columns" if columns > width else ""
        yield Need(largest, f"embeddings.d_model={width}{wider}", "for its projections", "choose fewer numbers")
    if memory is not None:
        vectors = max(vectors, INPUTS * NUMBER * source + NAME)
        yield Need(keys * vectors, f"embeddings.memory.tokens={keys}", "for its vectors", fewer)


def estimate_matrices(config: Config, rows: int, keys: int) -> Need:
    """Estimate the logits and weights `[h t s]` of all variants together."""
    sizes = {name: count_matrix_bytes(variant, config, rows, keys) for name, variant in config.variant.items()}
    needed = max(sizes.values()) if config.weights == "blocks" else sum(sizes.values())
    largest = max(sizes, key=lambda name: sizes[name])
    asked = next((f"{name}=" for name in ASKING if getattr(config, name)), "")
    whose = asked or ("weights=full" if config.weights == "full" else f"variant {largest}")
    summarized = " with weights=auto" if config.weights == "full" else ""
    other = f"use variant=[blockwise]{summarized}, which never forms one"
    instead = "choose fewer tokens, or leave it out" if asked else other
    return Need(needed, f"embeddings.tokens={rows}: {whose}", f"for whole matrices of {rows} x {keys}", instead)


def count_matrix_bytes(variant: Variant, config: Config, rows: int, keys: int) -> int:
    if variant.form not in forms.names() and not forms.is_own(variant.form):
        return 0  # an unknown form is refused later
    count = max(forms.form(variant.form).matrices, 1 if config.weights == "full" else 0)
    if any(getattr(config, name) for name in ASKING):
        count = max(count, 10)  # they are compared with the matrix form in `longdouble`
    return count * NUMBER * rows * keys * (config.head if variant.head is None else variant.head)


def refuse_too_large(needs: Iterable[Need]) -> None:
    """Refuse needs that do not fit together, and name the largest.

    Raises:
        UserError: with the sizes, the free memory, and a way out.
    """
    parts = list(needs)
    whole = sum(part.size for part in parts)
    if whole > SMALL and whole > free():
        most = max(parts, key=lambda part: part.size)
        others = f", {gib(whole)} with all else" if whole - most.size > most.size / 20 else ""
        needed = f"{most.setting} needs {gib(most.size)} {most.purpose}".rstrip()
        raise UserError(f"{needed}{others}, and {gib(free())} are free; {most.instead}")


def free() -> int:
    """Return how many bytes this process can still allocate, within the system's and the container's limits."""
    left = 8 << 30  # if the system does not say
    with suppress(AttributeError, ValueError, OSError):
        left = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        left = 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    with suppress(OSError, ValueError, KeyError):  # without a limit, it is the word "max"
        limit, stat = (Path(f"/sys/fs/cgroup/memory.{name}").read_text(encoding="ascii") for name in ("max", "stat"))
        left = min(left, int(limit) - int(dict(line.split() for line in stat.splitlines())["anon"]))
    return max(0, left)


def gib(size: int) -> str:
    """Format a number of bytes in GiB, or in MiB below one GiB."""
    if size < 1 << 30:
        return f"{size / 2**20:,.3g} MiB" if size < 1000 * 2**20 else "1 GiB"
    return f"{size / 2**30:,.3g} GiB" if size < 1000 * 2**30 else f"{size / 2**30:,.0f} GiB"


# How far it is

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
        OWN_PROGRESS.set()


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
