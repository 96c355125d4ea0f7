"""Environment variables that hold a library below what the processor can do, told in words and never changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

LEVELS = ("SSE", "AVX", "AVX2", "AVX-512")
"""Vector instructions of x86 processors, each including the ones before."""

FLAGS = {"avx": 1, "avx2": 2, "avx512f": 3}
"""What a processor that has a level says of itself in `/proc/cpuinfo`."""

PINS = {
    "OPENBLAS_CORETYPE": ("OpenBLAS", {
        "prescott": 0, "core2": 0, "penryn": 0, "dunnington": 0, "nehalem": 0, "atom": 0, "athlon": 0, "opteron": 0,
        "opteron_sse3": 0, "barcelona": 0, "bobcat": 0, "sandybridge": 1, "bulldozer": 1, "piledriver": 1,
        "steamroller": 1, "excavator": 1, "haswell": 2, "zen": 2, "skylakex": 3, "cooperlake": 3, "sapphirerapids": 3,
    }),
    "MKL_ENABLE_INSTRUCTIONS": ("MKL", {"sse4_2": 0, "avx": 1, "avx2": 2, "avx512": 3}),
    "ATEN_CPU_CAPABILITY": ("PyTorch", {"default": 0, "avx2": 2, "avx512": 3}),
    "ONEDNN_MAX_CPU_ISA": ("oneDNN", {"sse41": 0, "avx": 1, "avx2": 2, "avx512_core": 3}),
}  # fmt: skip
"""Which library obeys a variable, and up to which level each of its words lets it go. PyTorch alone minds their case.

Source: OpenBLAS, `driver/others/dynamic.c`; the manuals of oneMKL, PyTorch and oneDNN.
"""


def pins(environment: Mapping[str, str], flags: Collection[str]) -> Iterator[str]:
    """Yield one sentence for each variable that keeps a library from instructions that the processor has."""
    able = max((level for flag, level in FLAGS.items() if flag in flags), default=0)
    for variable, (library, words) in PINS.items():
        word = environment.get(variable, "")
        level = words.get(word if library == "PyTorch" else word.lower(), able)
        if level < able:
            yield (
                f"{variable}={word} holds {library} to {LEVELS[level]}, and this processor has {LEVELS[able]}: "
                "times here are not the best that it can do"
            )


def cpu_flags() -> frozenset[str]:
    """Return what the processor says it can do; nothing where the system does not tell."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return frozenset(next(line for line in lines if line.startswith("flags")).partition(":")[2].split())
    return frozenset()
