"""Which processor this is: goals differ with its maker, since every library is tuned for some of them."""

from __future__ import annotations

from attn_exp.forms._blocks.tasks import KEYS, second_level
from attn_exp.runs.provenance import cpu
from attn_exp.system import usable_cores

MAKERS = ("AMD", "Intel", "Apple")


def maker(name: str | None = None) -> str:
    """Return who made it, one of `MAKERS`, or "other"."""
    words = (cpu() if name is None else name).lower()
    return next((maker for maker in MAKERS if maker.lower() in words), "other")


def described() -> str:
    """Return its name, maker, cores and second-level cache, and the tile that follows from it."""
    cache = second_level()
    level = "of unknown size" if cache is None else f"{cache >> 10:,} KiB"
    cores = usable_cores()
    return f"{cpu()} ({maker()}), {cores} cores, second-level cache {level} a core, tiles of {KEYS:,} keys"
