"""How large the processor's second-level cache is, which a tile of logits should fit, as the system tells it."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

LINUX = Path("/sys/devices/system/cpu/cpu0/cache")

UNITS = {"K": 1 << 10, "M": 1 << 20}

MACOS = ("hw.perflevel0.l2cachesize", "hw.perflevel0.cpusperl2"), ("hw.l2cachesize", "")
"""The names of a size and of how many cores share it: of processors with fast and slow cores, and of others."""


def second_level() -> int | None:
    """Return the bytes of second-level cache that a core has to itself, or None where nobody tells."""
    if sys.platform == "darwin":
        return from_sysctl()
    return from_folder(LINUX)


def from_folder(folder: Path) -> int | None:
    """Read what Linux tells: a folder for each cache of a processor."""
    try:
        for cache in sorted(folder.glob("index*")):
            level, kind, size, sharing = (
                (cache / name).read_text(encoding="ascii").strip()
                for name in ("level", "type", "size", "shared_cpu_list")
            )
            if level == "2" and kind in ("Data", "Unified"):
                return int(size.rstrip("KM")) * UNITS.get(size[-1:], 1) // cores(sharing)
    except (OSError, ValueError):  # containers hide it, and some processors have none
        return None
    return None


def cores(sharing: str) -> int:
    """Count the cores of a list such as `0-3,8`."""
    ends = [part.partition("-") for part in sharing.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


def from_sysctl() -> int | None:
    """Ask what macOS tells."""
    for size, sharing in MACOS:
        if found := asked(size):
            return found // max(1, asked(sharing))
    return None


def asked(name: str) -> int:
    """Return a number of the system by its name, or 0 where it has none of that name."""
    number, length = ctypes.c_uint64(0), ctypes.c_size_t(8)
    ask = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if ask is None or ask(name.encode(), ctypes.byref(number), ctypes.byref(length), None, 0):
        return 0
    return number.value
