"""How fast sweeps are: python benchmarks/sweeps.py [--only NAME ...] [--million 1000000] [--against CHECKOUT]

Every line is one command in a folder of its own, timed from its start to its end, reports included. The table says what
was wanted, what was measured, and whether that meets it.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

PEAK = """
import atexit, resource
atexit.register(lambda: open("peak", "w").write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)))
from attn_exp.cli import main
main()
"""

SMALLEST = ["embeddings=random", "embeddings.tokens=2", "embeddings.d_model=2", "variant=[matrix]"]
THREE_TOKENS = ["-m", "seed=range(10000)"]


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    what: str
    goal: str
    measured: str
    met: bool


class Time(NamedTuple):
    """Seconds on the clock, and of all processors by the process and its workers: a busy machine changes the first."""

    wall: float
    busy: float


def timed(folder: Path, *arguments: str, root: Path = ROOT) -> Time:
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(root)}
    start = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Time(time.perf_counter() - start, busy)


def sweep(folder: Path, *words: str) -> Time:
    return timed(folder, "-m", "attn_exp", *words)


def ten_thousand(folder: Path) -> Iterator[Line]:
    took = sweep(folder, *THREE_TOKENS)
    told = f"{took.wall:.1f} s ({took.busy:.1f} s of processors)"
    yield Line("10,000 points of 3 tokens, 4 variants, to the report", "<= 30 s", told, took.wall <= 30)


def resumed(folder: Path) -> Iterator[Line]:
    words = ["-m", *SMALLEST, "seed=range(100000)", "report=tables"]
    sweep(folder, *words)
    took = sweep(folder, *words)
    told = f"{took.wall:.2f} s ({took.busy:.2f} s of processors)"
    yield Line("resuming a finished sweep of 100,000 points", "<= 2 s", told, took.wall <= 2)


def million(folder: Path, points: int) -> Iterator[Line]:
    words = ["-m", *SMALLEST, f"seed=range({points})"]
    took = timed(folder, "-c", PEAK, *words)
    minutes = took.wall / 60
    peak = int((folder / "peak").read_text()) / 1024
    files = sum(path.is_file() for path in folder.rglob("*"))
    name = f"{points:,} points of the smallest task"
    yield Line(
        f"{name}, to the report", "<= 10 min", f"{minutes:.1f} min ({took.busy / 60:.1f} of processors)", minutes <= 10
    )
    yield Line(f"{name}, memory of the driver", "<= 600 MiB", f"{peak:.0f} MiB", peak <= 600)
    yield Line(f"{name}, files", "<= 1000", str(files), files <= 1000)


def rate(folder: Path, other: Path | None, smallest: int) -> Iterator[Line]:
    """Processor time of this checkout over that of another one, in turn, reports included: of the medians of three.

    Without another one there is nothing to say.
    """
    if other is None:
        return
    many = (f"{smallest:,} points of the smallest task", [*SMALLEST, f"seed=range({smallest})"], 1 / 2)
    axes = ["embeddings=random", "head=1,2,4", "scale=true,false", "embeddings.d_model=8,16,32"]
    for name, words, goal in (
        ("10,000 points of 3 tokens, 4 variants", THREE_TOKENS[1:], 1 / 3),
        many,
        ("18 settings x 200 seeds, the seeds first", ["seed=range(200)", *axes], 1 / 3),
        ("18 settings x 200 seeds, the seeds last", [*axes, "seed=range(200)"], 1 / 3),
    ):
        seconds: dict[Path, list[float]] = {other: [], ROOT: []}
        files = {}
        for turn in range(1 if words is many[1] else 3):
            for place, root in enumerate(seconds):
                home = folder / f"{len(words)}-{words[0]}-{turn}-{place}"
                seconds[root].append(timed(home, "-c", PEAK, "-m", *words, root=root).busy)
                parts = sum(path.is_file() for path in home.rglob("*"))
                files[root] = f"{parts} files, {int((home / 'peak').read_text()) // 1024} MiB"
        before, now = (median(busy) for busy in seconds.values())
        told = f"{now / before:.2f} ({now:.1f} s, {files[ROOT]}; before {before:.1f} s, {files[other]})"
        yield Line(f"{name}, of processors", f"<= {goal:.2f}", told, now / before <= goal)


def main() -> None:
    """Run the benchmarks that were asked for and print the table."""
    parser = argparse.ArgumentParser(description="How fast sweeps are.")
    parser.add_argument("--only", nargs="*", help="ten_thousand, resumed, million, rate (all)")
    parser.add_argument("--million", type=int, default=1_000_000, help="points of the largest sweep (1,000,000)")
    parser.add_argument("--against", type=Path, help="an older checkout that `rate` compares with")
    given = parser.parse_args()
    benchmarks: dict[str, Callable[[Path], Iterator[Line]]] = {
        "ten_thousand": ten_thousand,
        "resumed": resumed,
        "million": lambda folder: million(folder, given.million),
        "rate": lambda folder: rate(folder, given.against, given.million),
    }
    print("| what | goal | measured | |\n| --- | --- | --- | --- |", flush=True)
    for name, benchmark in benchmarks.items():
        if given.only and name not in given.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            for line in benchmark(Path(folder)):
                met = "met" if line.met else "missed"
                print(f"| {line.what} | {line.goal} | {line.measured} | {met} |", flush=True)


if __name__ == "__main__":
    main()
