"""Estimate the memory of a long run before its arrays are drawn, and show its progress."""

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
from attn_exp.processes import format_duration

FLOAT_BYTES, NAME_BYTES = 8, 150
"""The number of bytes of a float64, and of a token's name in memory and on disk."""

SMALL, GIB = 1 << 26, 1 << 30
"""Up to `SMALL` bytes always fit, so the free memory is not queried. `GIB` is one GiB in bytes."""

INPUTS, PROJECTIONS = 10, len(MATRICES) + 7
"""How many arrays are in memory at once: arrays of the size of x (x, q, k, v, contexts, outputs and write buffers), and
arrays of the size of a projection. The reference has W_o as lists of Python floats, which count as several arrays."""

FULL_MATRIX_SETTINGS = ("check", "dtype", "metrics")


class Estimate(NamedTuple):
    """How much memory some arrays of a run need, and the parts of an error message in case it is too much.

    `size`: the number of bytes.
    `setting`: the setting that makes the arrays so large.
    `purpose`: what the arrays are for.
    `instead`: what the user can do instead.
    """

    size: int
    setting: str
    purpose: str
    instead: str


def refuse_too_large_inputs(config: Config) -> None:
    """Refuse a run whose x, projections or matrices would not fit into memory, before its arrays are drawn.

    Raises:
        UserError: they do not fit; the message gives the size, the free memory, and what to do instead.
    """
    draws = config.draws or {}
    for name, array in {**vars(config.embeddings), **draws}.items():
        if isinstance(array, Draw):
            refuse_too_large(
                [
                    Estimate(
                        size=INPUTS * FLOAT_BYTES * math.prod(array.shape),
                        setting=f"{name}.shape={[*array.shape]}",
                        purpose="to draw",
                        instead="choose a smaller shape",
                    )
                ]
            )
    size = drawing.drawn_shape(draws["x"]) if "x" in draws else sources.size(config.embeddings)
    if size is not None:
        refuse_too_large(estimate_all(config, size))


def estimate_all(config: Config, size: tuple[int, int]) -> Iterator[Estimate]:
    """Yield the estimates for x, for the cross-attention memory, for the projections, and for the matrices.

    `size` is the number of rows and columns of x.
    """
    (rows, width), memory = size, sources.memory_size(config, size)
    (keys, key_width), instead = memory or size, "choose fewer tokens"
    columns = max(widths(config.projections, width).values()) if config.projections.source != "none" else 0
    token, memory_token = (
        INPUTS * FLOAT_BYTES * max(token_width, columns) + NAME_BYTES for token_width in (width, key_width)
    )
    yield Estimate(rows * token, f"embeddings.tokens={rows} with d_model={width}", "for its vectors", instead)
    if memory is not None:
        yield Estimate(keys * memory_token, f"embeddings.memory.tokens={keys}", "for its vectors", instead)
    yield Estimate(
        size=PROJECTIONS * FLOAT_BYTES * max(width, key_width) * columns,
        setting=f"embeddings.d_model={width} with projections of {columns} columns",
        purpose="for its projections",
        instead="choose a smaller d_model",
    )
    yield estimate_matrices(config, max(rows - config.past, 0), keys)


def estimate_matrices(config: Config, rows: int, keys: int) -> Estimate:
    """Return the estimate for the logits and weights `[h t s]` of all variants together."""
    sizes = {name: count_matrix_bytes(variant, config, rows, keys) for name, variant in config.variant.items()}
    needed = max(sizes.values()) if config.weights == "blocks" else sum(sizes.values())
    request = next((f"{name}=" for name in FULL_MATRIX_SETTINGS if getattr(config, name)), "")
    largest = "weights=full" if config.weights == "full" else f"variant {max(sizes, key=sizes.__getitem__)}"
    instead = (
        f"choose fewer tokens, or leave out {request}"
        if request
        else "use variant=[blockwise] with weights=auto, which stores no full matrix"
    )
    return Estimate(
        size=needed,
        setting=f"embeddings.tokens={rows}: {request or largest}",
        purpose=f"for full matrices of {rows} x {keys}",
        instead=instead,
    )


def count_matrix_bytes(variant: Variant, config: Config, rows: int, keys: int) -> int:
    if variant.form not in forms.names() and not forms.is_own(variant.form):
        return 0  # an unknown form is refused later
    # with one of these settings, the form `matrix` runs twice, once in `longdouble`; each run has five stages
    is_compared = any(getattr(config, name) for name in FULL_MATRIX_SETTINGS)
    count = 10 if is_compared else max(forms.form(variant.form).matrices, int(config.weights == "full"))
    return count * FLOAT_BYTES * rows * keys * (variant.head or config.head)


def refuse_too_large(needs: Iterable[Estimate]) -> None:
    """Refuse a run whose arrays do not all fit into memory.

    Raises:
        UserError: they do not fit; the message names the largest, the free memory, and what to do instead.
    """
    estimates = list(needs)
    total = sum(estimate.size for estimate in estimates)
    if total > SMALL and total > free_bytes():
        largest = max(estimates, key=lambda estimate: estimate.size)
        others = f" ({total / GIB:,.1f} GiB in total)" if total - largest.size > largest.size / 20 else ""
        raise UserError(
            f"{largest.setting} needs {largest.size / GIB:,.1f} GiB {largest.purpose}{others}, "
            f"but only {free_bytes() / GIB:,.1f} GiB are free; {largest.instead}"
        )


def free_bytes() -> int:
    """Return how many bytes this process can still allocate within the limits of the system and the container."""
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 8 << 30
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available = 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    with suppress(OSError, ValueError, KeyError):  # without a limit, the file contains the word "max"
        limit, stat = (Path(f"/sys/fs/cgroup/memory.{name}").read_text(encoding="ascii") for name in ("max", "stat"))
        available = min(available, int(limit) - int(dict(line.split() for line in stat.splitlines())["anon"]))
    return max(0, available)


# The progress line

PATIENCE, REDRAW, EVERY = 2.0, 0.25, 10.0
"""Seconds before the first line, between redraws on a terminal, and between lines elsewhere."""


@dataclass
class Progress:
    """A progress line on stderr: redrawn in place on a terminal, elsewhere a new line every `EVERY` seconds."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    started: float = field(default_factory=monotonic)
    shown: float = 0.0

    def tell(self, text: str, parts: int, done: int, share: float = 0.0, last: bool = False) -> None:
        """Show the progress: `done` of all `parts` are complete, and a fraction `share` of the next one.

        Nothing is shown before a new line is due, unless it is the `last` line.
        """
        now, is_terminal, fraction = monotonic(), self.stream.isatty(), (done + share) / max(parts, 1)
        wait = REDRAW if is_terminal else EVERY
        if last or now >= (self.shown + wait if self.shown else self.started + PATIENCE):
            remaining = format_duration((now - self.started) * (1 - fraction) / max(fraction, 1e-9))
            line = f"{text}, {100 * fraction:.0f} %, {remaining} left" if 0.02 < fraction < 1 else text
            self.stream.write(f"\r\x1b[K{line}" + "\n" * last if is_terminal else f"{line}\n")
            self.stream.flush()
            self.shown = now

    def clear(self) -> None:
        if self.shown and self.stream.isatty():
            self.stream.write("\r\x1b[K")


@dataclass
class PointProgress(Progress):
    """The progress line of a sweep.

    `points`: the number of all points.
    `cached`, `done`: how many points were computed earlier, and how many in this run.
    `failed`: how many points failed.
    """

    points: int = 0
    cached: int = 0
    done: int = 0
    failed: int = 0

    def add(self, done: int, failed: int) -> None:
        self.done += done
        self.failed += failed
        self.show()

    def show(self, last: bool = False) -> None:
        counts = (
            f"{self.cached + self.done:,} of {self.points:,} points, {self.failed:,} failed, {self.cached:,} cached"
        )
        self.tell(counts, self.points - self.cached, self.done, last=last)
