"""Whether a run fits in memory, asked before anything is allocated."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

from attn_exp import forms
from attn_exp.config.inputs import Draw
from attn_exp.config.schema import Config, Variant
from attn_exp.errors import UserError
from attn_exp.problem import drawing, sources
from attn_exp.problem.draw_order import widths
from attn_exp.problem.embeddings import memory_size
from attn_exp.problem.matrices import MATRICES

NUMBER = 8
"""Bytes of a float64."""

SMALL = 1 << 28
"""Bytes that are taken without asking how many are free."""

INPUTS = 10
"""Arrays as large as x that a run holds at once: x, q, k, v, contexts, outputs and what is on its way to the disk."""

GROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def check_drawn(config: Config) -> None:
    """Refuse an x, its projections, and the matrices of its tokens, that would not fit, before anything is drawn.

    Raises:
        UserError: with the size, what is free, and a way out.
    """
    check_written(config)
    drawn = (config.draws or {}).get("x")
    size = sources.size(config.embeddings) if drawn is None else drawing.size(drawn)
    if size is None:
        return
    rows, width = size
    inputs = INPUTS * NUMBER * rows * width
    if too_large(inputs):
        raise UserError(
            f"embeddings.tokens={rows} with d_model={width} needs {gib(inputs)} for its vectors, "
            f"and {gib(free())} are free; choose fewer tokens"
        )
    projections = len(MATRICES) * NUMBER * width * max(widths(config.projections, width).values())
    if config.projections.source != "none" and too_large(projections):
        raise UserError(
            f"embeddings.d_model={width} needs {gib(projections)} for its projections, "
            f"and {gib(free())} are free; choose fewer numbers"
        )
    beside = memory_size(config, size)
    keys, source = size if beside is None else beside
    if too_large(needed := INPUTS * NUMBER * keys * source):
        raise UserError(
            f"embeddings.memory.tokens={keys} needs {gib(needed)} for its vectors, and {gib(free())} are free; "
            "choose fewer tokens"
        )
    check(config, max(rows - config.past, 0), keys)


def check_written(config: Config) -> None:
    """Refuse an array that the settings describe by its shape, where it would not fit."""
    draws = config.draws or {}
    places = {f"embeddings.{name}": getattr(config.embeddings, name) for name in ("vectors", "q", "k", "v", "weights")}
    for key, given in (places | {f"draws.{name}": given for name, given in draws.items()}).items():
        if isinstance(given, Draw) and too_large(needed := INPUTS * NUMBER * math.prod(given.shape)):
            raise UserError(
                f"{key}.shape={list(given.shape)} needs {gib(needed)}, and {gib(free())} are free; "
                "choose fewer rows or columns"
            )


def check(config: Config, rows: int, keys: int) -> None:
    """Refuse matrices of logits and weights `[h t s]` that would not fit beside each other.

    Raises:
        UserError: with the size, what is free, and a way out.
    """
    sizes = {name: matrices(variant, config, rows, keys) for name, variant in config.variant.items()}
    needed = max(sizes.values(), default=0) if config.weights == "blocks" else sum(sizes.values())
    if not too_large(needed):
        return
    largest = max(sizes, key=lambda name: sizes[name])
    asked = next((f"{name}= needs" for name in ("check", "dtype", "metrics") if getattr(config, name)), "")
    whose = asked or ("weights=full keeps" if config.weights == "full" else f"variant {largest} forms")
    raise UserError(
        f"embeddings.tokens={rows}: {whose} whole matrices of {rows} x {keys}, {gib(needed)} together, "
        f"and {gib(free())} are free; {way_out(config)}"
    )


def way_out(config: Config) -> str:
    """Return what to choose instead."""
    if config.check or config.dtype or config.metrics:
        return "choose fewer tokens, or leave it out"
    chosen = [variant.form for variant in config.variant.values()]
    never = all(forms.form(name).matrices == 0 for name in chosen if name in forms.names())
    return "use weights=auto" if never else "use variant=[blockwise], which never forms one"


def matrices(variant: Variant, config: Config, rows: int, keys: int) -> int:
    """Return the bytes of the matrices that a variant forms, and with `weights=full` keeps."""
    if variant.form not in forms.names() and not forms.is_own(variant.form):
        return 0  # what has no such form is told later
    count = max(forms.form(variant.form).matrices, 1 if config.weights == "full" else 0)
    if config.check or config.dtype or config.metrics:
        count = max(count, 10)  # they are held against the matrix form in `longdouble`
    return count * NUMBER * rows * keys * (config.head if variant.head is None else variant.head)


def too_large(needed: int) -> bool:
    return needed > SMALL and needed > free()


def free() -> int:
    """Return how many bytes could be taken: what the system has, or all that the process's group may."""
    limits = [system_free()]
    for limit in GROUP_LIMITS:
        with suppress(OSError, ValueError):  # "max" is no number, and means none
            limits.append(int(limit.read_text(encoding="ascii")))
    return min(limits)


def system_free() -> int:
    """Return the memory that the system could hand out without swapping, in bytes."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 1 << 62  # nobody knows: let the system say no


def gib(size: int) -> str:
    """Write a number of bytes in GiB."""
    return f"{size / 2**30:,.3g} GiB" if size < 1000 * 2**30 else f"{size / 2**30:,.0f} GiB"
