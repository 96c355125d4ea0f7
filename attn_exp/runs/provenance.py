"""Provenance of a result: versions, git state, processor and BLAS."""

from __future__ import annotations

import platform
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import threadpoolctl

HERE = Path(__file__).resolve().parent.parent
BLAS_KEYS = ("internal_api", "version", "architecture", "num_threads", "threading_layer")
Git = subprocess.Popen[str]
LIBRARIES = ("numpy", "hydra", "omegaconf", "pandas", "matplotlib", "jinja2")


def origin(git: Git | None) -> dict[str, Any]:
    """Return everything besides the configuration that could change a result; `git` is from `ask_git`."""
    return {
        "versions": {"python": platform.python_version(), **versions()},
        "git": git_state(git),
        "cpu": cpu(),
        "blas": [{key: pool.get(key) for key in BLAS_KEYS} for pool in threadpoolctl.threadpool_info()],
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
