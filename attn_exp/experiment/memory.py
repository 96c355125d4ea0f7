"""Whether a run fits in memory, asked before anything is allocated."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from attn_exp import forms
from attn_exp.config.schema import Config, Variant
from attn_exp.errors import UserError

NUMBER = 8
"""Bytes of a float64."""

SMALL = 1 << 28
"""Bytes that are taken without asking how many are free."""

INPUTS = 10
"""Arrays as large as x that a run holds at once: x, q, k, v, contexts, outputs and what is on its way to the disk."""

GROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def check_drawn(config: Config) -> None:
    """Refuse an x, and the matrices of its tokens, that would not fit, before x is drawn.

    Raises:
        UserError: with the size, what is free, and a way out.
    """
    given = config.embeddings
    if given.distribution is None or given.tokens is None or given.d_model is None:
        return
    rows = given.tokens if isinstance(given.tokens, int) else len(given.tokens)
    inputs = INPUTS * NUMBER * rows * given.d_model
    if too_large(inputs):
        raise UserError(
            f"embeddings.tokens={rows} with d_model={given.d_model} needs {gib(inputs)} for its vectors, "
            f"and {gib(free())} are free; choose fewer tokens"
        )
    check(config, rows, rows)


def check(config: Config, rows: int, keys: int) -> None:
    """Refuse matrices of logits and weights `[h t s]` that would not fit beside each other.

    Raises:
        UserError: with the size, what is free, and a way out.
    """
    sizes = {name: matrices(each, config, rows, keys) for name, each in config.variant.items()}
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
    never = all(forms.form(each.form).matrices == 0 for each in config.variant.values() if each.form in forms.NAMES)
    return "use weights=auto" if never else "use variant=[blockwise], which never forms one"


def matrices(variant: Variant, config: Config, rows: int, keys: int) -> int:
    """Return the bytes of the matrices that a variant forms, and with `weights=full` keeps."""
    if variant.form not in forms.NAMES:
        return 0  # what has no such form is told later
    count = max(forms.form(variant.form).matrices, 1 if config.weights == "full" else 0)
    if config.check or config.dtype or config.metrics:
        count = max(count, 10)  # they are held against the matrix form in `longdouble`
    return count * NUMBER * rows * keys * (config.head if variant.head is None else variant.head)


def too_large(needed: int) -> bool:
    return needed > SMALL and needed > free()


def free() -> int:
    """Return how many bytes could be taken: what the system has, or all that the process's group may."""
    found = [system_free()]
    for limit in GROUP_LIMITS:
        with suppress(OSError, ValueError):  # "max" is no number, and means none
            found.append(int(limit.read_text(encoding="ascii")))
    return min(found)


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
