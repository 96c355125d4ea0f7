"""Where a result comes from: versions, git state, processor, BLAS."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import threadpoolctl

HERE = Path(__file__).resolve().parent
BLAS_KEYS = ("internal_api", "version", "architecture", "num_threads", "threading_layer")
LIBRARIES = ("numpy", "hydra", "omegaconf", "pandas", "matplotlib", "jinja2")


def provenance() -> dict[str, Any]:
    """Return what else than its configuration could change a result, as plain values."""
    return {
        "versions": {"python": platform.python_version(), **versions()},
        "git": git_state(HERE.parent),
        "cpu": cpu(),
        "blas": [{key: pool.get(key) for key in BLAS_KEYS} for pool in threadpoolctl.threadpool_info()],
    }


def versions() -> dict[str, str]:
    """Return the versions of the libraries that this run has imported, and of no other."""
    return {name: str(sys.modules[name].__version__) for name in LIBRARIES if name in sys.modules}


def git_state(checkout: Path) -> dict[str, Any] | None:
    """Return the commit and whether anything differs from it; None outside a checkout of this project."""
    if not (checkout / "pyproject.toml").is_file():
        return None
    command = ["git", "-C", str(checkout), "status", "--porcelain=v2", "--branch"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    commits = [line.split()[2] for line in lines if line.startswith("# branch.oid")]
    return {"commit": commits[0] if commits else None, "dirty": any(not line.startswith("#") for line in lines)}


def cpu() -> str:
    """Return the processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
