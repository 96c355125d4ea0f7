"""Which processor this is: figures and goals differ with its generation, since every library is tuned for some."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from pathlib import Path

from attn_exp.forms._blocks.tasks import KEYS, read_cache_size
from attn_exp.processes import usable_cores
from attn_exp.runs.provenance import read_cpu

MAKERS = ("AMD", "Intel", "Apple")

GENERATIONS: Mapping[tuple[str, int], tuple[tuple[range, str], ...]] = {
    ("AMD", 23): ((range(0x30), "Zen"), (range(0x30, 0x100), "Zen 2")),
    ("AMD", 25): (
        (range(0x10), "Zen 3"),
        (range(0x10, 0x20), "Zen 4"),
        (range(0x20, 0x60), "Zen 3"),
        (range(0x60, 0x80), "Zen 4"),
        (range(0xA0, 0xB0), "Zen 4"),
    ),
    ("AMD", 26): ((range(0x100), "Zen 5"),),
    ("Intel", 6): (
        (range(0x3C, 0x3D), "Haswell"),
        (range(0x3F, 0x40), "Haswell"),
        (range(0x4F, 0x50), "Broadwell"),
        (range(0x55, 0x56), "Skylake-SP or Cascade Lake"),
        (range(0x6A, 0x6B), "Ice Lake-SP"),
        (range(0x6C, 0x6D), "Ice Lake-SP"),
        (range(0x8F, 0x90), "Sapphire Rapids"),
        (range(0xAD, 0xAF), "Granite Rapids"),
        (range(0xCF, 0xD0), "Emerald Rapids"),
    ),
}
"""Generations by maker, family and model, as the kernel of Linux tells them apart. A virtual machine often gives no
other name than its maker's."""


def maker(name: str | None = None) -> str:
    """Return who made it, one of `MAKERS`, or "other"."""
    words = (read_cpu() if name is None else name).lower()
    return next((maker for maker in MAKERS if maker.lower() in words), "other")


def generation() -> str:
    """Return the generation, such as "Zen 4", from `/proc/cpuinfo`; an empty text if it is not there or unknown."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    facts = dict(re.findall(r"^(cpu family|model|vendor_id)\s*: (.*)", text, re.MULTILINE))
    known = GENERATIONS.get((maker(facts.get("vendor_id", "")), int(facts.get("cpu family", 0))), ())
    return next((name for models, name in known if int(facts["model"]) in models), "")


def described() -> str:
    """Return its name, generation, cores and second-level cache, and the tile that follows from it."""
    cache = read_cache_size()
    level = "of unknown size" if cache is None else f"{cache >> 10:,} KiB"
    cores = usable_cores()
    which = generation() or maker()
    return (
        f"{read_cpu()} ({which}, {platform.machine()}), {cores} cores, second-level cache {level} a core, "
        f"tiles of {KEYS:,} keys"
    )
