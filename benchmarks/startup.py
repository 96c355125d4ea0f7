"""How long a small run takes, as ratios of what nobody can avoid: python benchmarks/startup.py [--repeats 15]

Each round times every command once, so that a busy machine slows all of them alike; the table shows medians over the
rounds and the ratio of the medians. The first round is not counted: it lets Python cache its bytecode, as it does for
every user (PYTHONDONTWRITEBYTECODE is left out of the environment: it would have our modules alone compiled anew).

| command | floor | goal |
| --- | --- | --- |
| `python -m attn_exp` (full report) | importing numpy, hydra, pandas, matplotlib's Figure with Agg, jinja2 | 2.0 |
| `python -m attn_exp report=none` | a bare `@hydra.main` app that does nothing | 1.5 |
| `python -m attn_exp --help` | the one before | 1.5 |
| `python -m attn_exp --cfg job` | the same | 1.5 |
| the first, less the second: what the report adds | the floor of the first | 0.5 |
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
    ("report adds", "imports", 0.5),
]


def seconds(arguments: list[str], folder: Path) -> float:
    """Return the wall time of one process in an empty folder of its own."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        Path(own, "bare.py").write_text(BARE)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPATH": str(ROOT)}
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=own, env=environment, check=True, capture_output=True)
        return time.perf_counter() - start


def main() -> None:
    """Time every command in turn, several rounds, and print the table."""
    parser = argparse.ArgumentParser(description="Start-up time of a small run, in ratios.")
    parser.add_argument("--repeats", type=int, default=15, help="rounds (15)")
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        rounds = [{name: seconds(each, Path(folder)) for name, each in COMMANDS.items()} for _ in range(repeats + 1)]
    medians = {name: statistics.median(times[name] for times in rounds[1:]) for name in COMMANDS}
    for name, median in medians.items():
        print(f"{name:15} {1000 * median:7.0f} ms")
    medians["report adds"] = medians["full report"] - medians["report=none"]
    for name, floor, goal in GOALS:
        ratio = medians[name] / medians[floor]
        print(f"{name} / {floor}: {ratio:.2f} (goal <= {goal}: {'met' if ratio <= goal else 'missed'})")


if __name__ == "__main__":
    main()
