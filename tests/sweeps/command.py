"""The command line as a user runs it, in a folder of its own: a process, or this one where it is not what is tested."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from attn_exp import cli
from tests import ROOT

COMMAND = [sys.executable, "-m", "attn_exp"]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}


HELD = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs do not hear Ctrl-C
from attn_exp.sweeps import task
whole, done = task.tabulate, []
def tabulate(config, **more):
    while len(done) >= 30 and not os.path.exists("go"):
        time.sleep(0.01)
    done.append(config.seed)
    return whole(config, **more)
task.tabulate = tabulate
task.compute_stacks = lambda *given: {}
"""
"""Points are computed one by one, and after 30 of them each process waits for a file `go`: a sweep that is held there
is under way for as long as a test needs."""


def start(folder: Path, *words: str, patch: str = "", limit: str = "") -> subprocess.Popen[str]:
    """Start a command and do not wait for it; `patch` is Python that runs first, `limit` an option of `ulimit`."""
    command = COMMAND if not patch else [sys.executable, "-c", f"{patch}\nfrom attn_exp.cli import main\nmain()"]
    if limit:
        command = ["bash", "-c", f'ulimit {limit}; exec "$@"', "limited", *command]
    return subprocess.Popen(
        [*command, *words],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, *words: str, patch: str = "", limit: str = "", code: int = 0) -> tuple[str, str]:
    """Run a command, hold it to its exit code, and return what it printed on stdout and stderr."""
    process = start(folder, *words, patch=patch, limit=limit)
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, out + err
    return out, err


def quickly(folder: Path, *words: str, code: int = 0) -> tuple[str, str]:
    """Do the same as `run` in this process, a sweep on the serial engine: half a second less of a processor's time."""
    engine = ["sweep.engine=serial"] if "-m" in words and not any("sweep.engine" in word for word in words) else []
    out, err, ended = io.StringIO(), io.StringIO(), 0
    alone = dict.fromkeys(cli.BLAS_THREADS, "1")
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, alone),
        mock.patch.object(sys, "argv", ["attn-exp", *words, *engine]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as stop:
            ended = stop.code if isinstance(stop.code, int) else 1
    assert ended == code, out.getvalue() + err.getvalue()
    return out.getvalue(), err.getvalue()


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Wait for something to become true, however busy the machine is, and fail if it does not."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def the_sweep(folder: Path) -> Path:
    """Return the folder of the only sweep."""
    (found,) = (folder / "outputs" / "sweeps").iterdir()
    return found


def results(folder: Path) -> list[dict[str, str]]:
    """Return the table of the only sweep."""
    with (the_sweep(folder) / "results.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def manifest(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((the_sweep(folder) / "manifest.json").read_text(encoding="utf-8"))
    return told


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended and waits to be noticed does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
