"""How long a small run takes: python benchmarks/startup.py [--repeats 15] [--base CHECKOUT]

Each round times every command once, so that a busy machine slows all of them alike; the table shows medians over the
rounds of the processor time, and of the time on the wall. The first round is not counted: it lets Python cache its
bytecode, as it does for every user (PYTHONDONTWRITEBYTECODE is left out of the environment: it would have our modules
alone compiled anew). With `--base`, another checkout runs the same commands in turn, each just before this one, and
the last column says how much longer this one takes: the median over the rounds of the difference in processor time.

Then come ratios of medians, each against what nobody can avoid:

| command | floor | goal |
| --- | --- | --- |
| `python -m attn_exp` (full report) | importing numpy, hydra, pandas, matplotlib's Figure with Agg, jinja2 | 2.0 |
| `python -m attn_exp report=none` | a bare `@hydra.main` app that does nothing | 1.5 |
| `python -m attn_exp --help` | the one before | 1.5 |
| `python -m attn_exp --cfg job` | the same | 1.5 |
| the first, less the second: what the report adds | the floor of the first | 0.35 |
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

IMPORTS = """
import numpy, hydra, pandas, jinja2
from matplotlib.figure import Figure
from matplotlib.backends.backend_agg import FigureCanvasAgg
"""

BARE = """
import hydra
@hydra.main(version_base="1.3", config_path=None)
def app(config): pass
app()
"""

COMMANDS = {
    "imports": ["-c", IMPORTS],
    "full report": ["-m", "attn_exp"],
    "bare hydra app": ["bare.py"],
    "report=none": ["-m", "attn_exp", "report=none"],
    "--help": ["-m", "attn_exp", "--help"],
    "--cfg job": ["-m", "attn_exp", "--cfg", "job"],
}

GOALS = [
    ("full report", "imports", 2.0),
    ("report=none", "bare hydra app", 1.5),
    ("--help", "report=none", 1.5),
    ("--cfg job", "report=none", 1.5),
    ("report adds", "imports", 0.35),
]


class Cost(NamedTuple):
    """What one process took, in seconds: of processors, its own children included, and on the wall."""

    processor: float
    wall: float


def cost(arguments: Sequence[str], checkout: Path, folder: Path) -> Cost:
    with tempfile.TemporaryDirectory(dir=folder) as own:
        Path(own, "bare.py").write_text(BARE)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPATH": str(checkout)}
        before, start = children(), time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=own, env=environment, check=True, capture_output=True)
        after, stop = children(), time.perf_counter()
    return Cost(after - before, stop - start)


def children() -> float:
    """Return the processor time of all processes that ended so far, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(checkouts: Sequence[Path], repeats: int) -> dict[tuple[Path, str], list[Cost]]:
    """Run every command of every checkout in turn, `repeats` times and once more before."""
    with tempfile.TemporaryDirectory() as folder:
        rounds = [
            {(root, name): cost(words, root, Path(folder)) for name, words in COMMANDS.items() for root in checkouts}
            for _ in range(repeats + 1)
        ]
    return {key: [costs[key] for costs in rounds[1:]] for key in rounds[0]}


def table(costs: dict[tuple[Path, str], list[Cost]], base: Path | None) -> str:
    """Return one line for each command: medians in ms, the other checkout's before this one's."""
    head = f"{'':15} {'processor':>10} {'wall':>8}"
    lines = [head if base is None else f"{'':15} {'base':>10} {'processor':>10} {'longer by':>10} {'wall':>8}"]
    for name in COMMANDS:
        ours = costs[ROOT, name]
        processor, wall = (statistics.median(times) for times in zip(*ours, strict=True))
        cells = [f"{name:15}", f"{1000 * processor:7.0f} ms", f"{1000 * wall:5.0f} ms"]
        if base is not None:
            theirs = [there.processor for there in costs[base, name]]
            longer = statistics.median(here.processor - there for here, there in zip(ours, theirs, strict=True))
            cells[1:1] = [f"{1000 * statistics.median(theirs):7.0f} ms"]
            cells[3:3] = [f"{1000 * longer:+7.1f} ms"]
        lines.append(" ".join(cells))
    return "\n".join(lines)


def ratios(costs: dict[tuple[Path, str], list[Cost]]) -> str:
    """Return one line for each goal: what is compared, and whether it is met."""
    medians = {name: statistics.median(one.processor for one in costs[ROOT, name]) for name in COMMANDS}
    medians["report adds"] = medians["full report"] - medians["report=none"]
    lines = []
    for name, floor, goal in GOALS:
        ratio = medians[name] / medians[floor]
        lines.append(f"{name} / {floor}: {ratio:.2f} (goal <= {goal}: {'met' if ratio <= goal else 'missed'})")
    return "\n".join(lines)


def main() -> None:
    """Time every command in turn, several rounds, and print the tables."""
    parser = argparse.ArgumentParser(description="Start-up time of a small run.")
    parser.add_argument("--repeats", type=int, default=15, help="rounds (15)")
    parser.add_argument("--base", type=Path, help="another checkout, to be compared with this one")
    given = parser.parse_args()
    base = None if given.base is None else given.base.resolve()
    costs = measured([ROOT] if base is None else [base, ROOT], given.repeats)
    print(f"{table(costs, base)}\n\n{ratios(costs)}")


if __name__ == "__main__":
    main()
