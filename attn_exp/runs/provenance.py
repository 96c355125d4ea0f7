"""Provenance of a result: versions, git state, processor, BLAS, and environment variables that restrict libraries.

Variables that keep a library from using the processor's instructions are reported and never changed.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import threadpoolctl

HERE = Path(__file__).resolve().parent.parent
BLAS_KEYS = ("internal_api", "version", "architecture", "num_threads", "threading_layer")
Git = subprocess.Popen[str]
LIBRARIES = ("numpy", "hydra", "omegaconf", "pandas", "matplotlib", "jinja2")

LEVELS = ("SSE", "AVX", "AVX2", "AVX-512")
"""Vector instructions of x86 processors, each including the ones before."""

FLAGS = {"avx": 1, "avx2": 2, "avx512f": 3}
"""Flags in `/proc/cpuinfo` for each level."""

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
"""The library that obeys a variable, and the level to which each value limits it. Only PyTorch is case-sensitive.

Source: OpenBLAS, `driver/others/dynamic.c`; the manuals of oneMKL, PyTorch and oneDNN.
"""


def provenance() -> dict[str, Any]:
    """Return everything besides the configuration that could change a result, as plain values."""
    with ask_git() as git:
        return origin(git)


def origin(git: Git | None) -> dict[str, Any]:
    """Return the same from a git process that is already running."""
    return {
        "versions": {"python": platform.python_version(), **versions()},
        "git": git_state(git),
        "cpu": cpu(),
        "blas": [{key: pool.get(key) for key in BLAS_KEYS} for pool in threadpoolctl.threadpool_info()],
        "pins": list(pins(os.environ, cpu_flags())),
    }


def versions() -> dict[str, str]:
    """Return the versions of those libraries that this run has imported."""
    return {name: str(sys.modules[name].__version__) for name in LIBRARIES if name in sys.modules}


def ask_git(checkout: Path = HERE.parent) -> Git | nullcontext[None]:
    """Start `git status`, so that it runs while the run computes; a null context outside a checkout."""
    command = ["git", "-C", str(checkout), "status", "--porcelain=v2", "--branch"]
    if not (checkout / "pyproject.toml").is_file():
        return nullcontext()
    try:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8", errors="replace"
        )
    except OSError:
        return nullcontext()


def git_state(git: Git | None) -> dict[str, Any] | None:
    """Return the commit and whether the checkout is dirty; None if this is no git checkout."""
    if git is None:
        return None
    lines = git.communicate()[0].splitlines()
    commits = [line.split()[2] for line in lines if line.startswith("# branch.oid")]
    return {"commit": commits[0], "dirty": any(not line.startswith("#") for line in lines)} if commits else None


def cpu() -> str:
    """Return the processor's name, as far as the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def pins(environment: Mapping[str, str], flags: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each variable that keeps a library from instructions that the processor has."""
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
    """Return the processor's feature flags; empty if the system does not report them."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return frozenset(next(line for line in lines if line.startswith("flags")).partition(":")[2].split())
    return frozenset()
