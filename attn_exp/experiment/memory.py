"""Whether a run fits in memory, asked before anything is drawn."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from attn_exp import forms
from attn_exp.config.inputs import Draw
from attn_exp.config.schema import Config, Variant
from attn_exp.errors import UserError
from attn_exp.problem import drawing, sources
from attn_exp.problem.drawing import widths
from attn_exp.problem.embeddings import memory_size
from attn_exp.problem.matrices import MATRICES

NUMBER, NAME = 8, 150
"""Bytes of a float64, and of the name of a token, in the problem and in what is written of it."""

SMALL = 1 << 26
"""Bytes that are taken without asking how many are free."""

INPUTS, PROJECTIONS = 10, len(MATRICES) + 3
"""Arrays as large as x that a run holds at once: x, q, k, v, contexts, outputs and what is on its way to the disk; and
arrays as large as one projection."""

LISTED = 4
"""How much larger a list of Python's numbers is than an array of them; the reference has W_o as such a list."""

ASKING = ("check", "dtype", "metrics")
"""Settings that hold every variant against whole matrices."""


class Need(NamedTuple):
    """What a part of a run takes: how many bytes, which setting decides it and for what, and a way out."""

    size: int
    setting: str
    purpose: str
    instead: str


def check_drawn(config: Config) -> None:
    """Refuse an x, its projections, and the matrices of its tokens, that would not fit, before anything is drawn.

    Raises:
        UserError: with the size, what is free, and a way out.
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
        keys, _ = memory_size(config, size) or size
        matrices = estimate_matrices(config, max(size[0] - config.past, 0), keys)
        refuse_too_large([*needs_of_inputs(config, size), matrices])


def check(config: Config, rows: int, keys: int) -> None:
    """Refuse matrices of logits and weights `[h t s]` that would not fit beside each other.

    Raises:
        UserError: with the size, what is free, and a way out.
    """
    refuse_too_large([estimate_matrices(config, rows, keys)])


def needs_of_inputs(config: Config, size: tuple[int, int]) -> Iterator[Need]:
    """Yield what x, its projections and the memory take, where x has so many rows and columns."""
    (rows, width), memory = size, memory_size(config, size)
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
    """Return what the matrices of logits and weights of all variants take."""
    sizes = {name: size_of_matrices(variant, config, rows, keys) for name, variant in config.variant.items()}
    needed = max(sizes.values(), default=0) if config.weights == "blocks" else sum(sizes.values())
    largest = max(sizes, key=lambda name: sizes[name], default="")
    asked = next((f"{name}=" for name in ASKING if getattr(config, name)), "")
    whose = asked or ("weights=full" if config.weights == "full" else f"variant {largest}")
    known = {variant.form for variant in config.variant.values()} & {*forms.names()}
    if asked:
        instead = "choose fewer tokens, or leave it out"
    elif all(forms.form(name).matrices == 0 for name in known):
        instead = "use weights=auto"
    else:
        instead = "use variant=[blockwise], which never forms one"
    return Need(needed, f"embeddings.tokens={rows}: {whose}", f"for whole matrices of {rows} x {keys}", instead)


def size_of_matrices(variant: Variant, config: Config, rows: int, keys: int) -> int:
    """Return the bytes of the matrices that a variant forms, and with `weights=full` keeps."""
    if variant.form not in forms.names() and not forms.is_own(variant.form):
        return 0  # what has no such form is told later
    count = max(forms.form(variant.form).matrices, 1 if config.weights == "full" else 0)
    if any(getattr(config, name) for name in ASKING):
        count = max(count, 10)  # they are held against the matrix form in `longdouble`
    return count * NUMBER * rows * keys * (config.head if variant.head is None else variant.head)


def refuse_too_large(needs: Iterable[Need]) -> None:
    """Refuse what does not fit beside each other, in the words of what takes most.

    Raises:
        UserError: with the sizes, what is free, and a way out.
    """
    parts = list(needs)
    whole = sum(part.size for part in parts)
    if whole <= max(SMALL, free() if whole > SMALL else 0):
        return
    most = max(parts, key=lambda part: part.size)
    others = f", {gib(whole)} with all else" if whole - most.size > most.size / 20 else ""
    purpose = f" {most.purpose}" if most.purpose else ""
    raise UserError(
        f"{most.setting} needs {gib(most.size)}{purpose}{others}, and {gib(free())} are free; {most.instead}"
    )


def free() -> int:
    """Return how many bytes this process could still take: what the system has, and what a container's limit leaves."""
    left = 8 << 30  # where the system does not say
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
    """Write a number of bytes in GiB, or in MiB where it is less than one of them."""
    if size < 1 << 30:
        return f"{size / 2**20:,.3g} MiB" if size < 1000 * 2**20 else "1 GiB"
    return f"{size / 2**30:,.3g} GiB" if size < 1000 * 2**30 else f"{size / 2**30:,.0f} GiB"
