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

NUMBER = 8
"""Bytes of a float64."""

SMALL = 1 << 26
"""Bytes that are taken without asking how many are free."""

INPUTS = 10
"""Arrays as large as x that a run holds at once: x, q, k, v, contexts, outputs and what is on its way to the disk."""

PROJECTIONS = len(MATRICES) + 3
"""Arrays as large as one projection that a run holds at once: all of them, and what is drawn, scaled or written."""

LISTED = 4
"""How much larger a list of Python's numbers is than an array of them; the reference has W_o as such a list."""

NAME = 150
"""Bytes that the name of a token takes, in the problem and in what is written of it."""

UNKNOWN = 8 << 30
"""Bytes that are taken to be there where the system does not say."""


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
    check_written(config)
    drawn = (config.draws or {}).get("x")
    size = sources.size(config.embeddings) if drawn is None else drawing.size(drawn)
    if size is None:
        return
    rows, width = size
    sides = widths(config.projections, width)
    projected = config.projections.source != "none"
    widest = max(width, *sides.values()) if projected else width
    needs = [
        Need(
            rows * (INPUTS * NUMBER * widest + NAME),
            f"embeddings.tokens={rows} with d_model={width}",
            "for its vectors",
            "choose fewer tokens",
        )
    ]
    beside = memory_size(config, size)
    keys, source = size if beside is None else beside
    if projected:
        joined = any(variant.output_projection for variant in config.variant.values())
        largest = NUMBER * max(width, source) * max(sides.values())
        held = PROJECTIONS + LISTED * joined
        wider = f" with projections of {max(sides.values())} columns" if max(sides.values()) > width else ""
        setting = f"embeddings.d_model={width}{wider}"
        needs.append(Need(held * largest, setting, "for its projections", "choose fewer numbers"))
    if beside is not None:
        vectors = keys * (INPUTS * NUMBER * max(source, widest) + NAME)
        needs.append(Need(vectors, f"embeddings.memory.tokens={keys}", "for its vectors", "choose fewer tokens"))
    refuse_too_large([*needs, of_matrices(config, max(rows - config.past, 0), keys)])


def check_written(config: Config) -> None:
    """Refuse an array that the settings describe by its shape, where it would not fit."""
    draws = config.draws or {}
    places = {f"embeddings.{name}": getattr(config.embeddings, name) for name in ("vectors", "q", "k", "v", "weights")}
    refuse_too_large(
        Need(INPUTS * NUMBER * math.prod(given.shape), f"{key}.shape={list(given.shape)}", "", "choose a smaller shape")
        for key, given in (places | {f"draws.{name}": given for name, given in draws.items()}).items()
        if isinstance(given, Draw)
    )


def check(config: Config, rows: int, keys: int) -> None:
    """Refuse matrices of logits and weights `[h t s]` that would not fit beside each other.

    Raises:
        UserError: with the size, what is free, and a way out.
    """
    refuse_too_large([of_matrices(config, rows, keys)])


def of_matrices(config: Config, rows: int, keys: int) -> Need:
    """Return what the matrices of logits and weights of all variants take."""
    sizes = {name: matrices(variant, config, rows, keys) for name, variant in config.variant.items()}
    needed = max(sizes.values(), default=0) if config.weights == "blocks" else sum(sizes.values())
    largest = max(sizes, key=lambda name: sizes[name], default="")
    asked = next((f"{name}=" for name in ("check", "dtype", "metrics") if getattr(config, name)), "")
    whose = asked or ("weights=full" if config.weights == "full" else f"variant {largest}")
    return Need(needed, f"embeddings.tokens={rows}: {whose}", f"for whole matrices of {rows} x {keys}", way_out(config))


def refuse_too_large(needs: Iterable[Need]) -> None:
    """Refuse what does not fit beside each other, in the words of what takes most.

    Raises:
        UserError: with the sizes, what is free, and a way out.
    """
    parts = list(needs)
    whole = sum(part.size for part in parts)
    if not too_large(whole):
        return
    most = max(parts, key=lambda part: part.size)
    others = f", {gib(whole)} with all else" if whole - most.size > most.size / 20 else ""
    purpose = f" {most.purpose}" if most.purpose else ""
    raise UserError(
        f"{most.setting} needs {gib(most.size)}{purpose}{others}, and {gib(free())} are free; {most.instead}"
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
    """Say whether so many bytes are more than is free; what is small is never looked up."""
    return needed > SMALL and needed > free()


# What the machine has left


def free() -> int:
    """Return how many bytes this process could still take: what the system has, and what limits leave it."""
    return max(0, min([system_free(), *left_by_groups(), *left_by_limits()]))


def system_free() -> int:
    """Return the memory that the system could hand out without swapping, in bytes."""
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return UNKNOWN


def left_by_groups() -> Iterator[int]:
    """Yield what the limit of each control group that this process is in leaves it, of Linux's second or first kind."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, kinds, place = line.split(":", 2)
            if kinds and "memory" not in kinds.split(","):
                continue
            top = Path("/sys/fs/cgroup/memory" if kinds else "/sys/fs/cgroup")
            limit, used = (
                ("memory.limit_in_bytes", "memory.usage_in_bytes") if kinds else ("memory.max", "memory.current")
            )
            inside = top / place.lstrip("/")
            for group in (inside, *inside.parents):
                if not group.is_relative_to(top):
                    break
                with suppress(OSError, ValueError):  # "max" is no number, and means none
                    yield int((group / limit).read_text(encoding="ascii")) - unreclaimable(group, used)


def unreclaimable(group: Path, used: str) -> int:
    """Return the bytes that a control group uses, without copies of files, which the system takes back at need."""
    with suppress(OSError, ValueError):
        bytes_used = int((group / used).read_text(encoding="ascii"))
        stat = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
        return bytes_used - int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
    return 0


def left_by_limits() -> Iterator[int]:
    """Yield what the limits of the process's own address space and data leave it, such as `ulimit -v` sets."""
    try:
        import resource  # noqa: PLC0415 - Windows has none
    except ImportError:
        return
    with suppress(OSError, ValueError):
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()
        sizes = {"RLIMIT_AS": int(pages[0]), "RLIMIT_DATA": int(pages[5])}
        for name, used in sizes.items():
            most = resource.getrlimit(getattr(resource, name))[0]
            if most != resource.RLIM_INFINITY:
                yield most - used * resource.getpagesize()


def gib(size: int) -> str:
    """Write a number of bytes in GiB, or in MiB where it is less than one of them."""
    if size < 1 << 30:
        return f"{size / 2**20:,.3g} MiB" if size < 1000 * 2**20 else "1 GiB"
    return f"{size / 2**30:,.3g} GiB" if size < 1000 * 2**30 else f"{size / 2**30:,.0f} GiB"
