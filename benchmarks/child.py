"""What a check costs that asks in a child process: python benchmarks/child.py [--repeats 7] [--base CHECKOUT]

Each round times the command, the same check without a child, or the command of another checkout where one is named, one
after the other, so that a busy machine slows all alike. Printed are the least seconds of the wall and of the processor,
what the measure takes, and the ratio; the goal is below 1.2.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
MINE = """
import numpy as np

def attention(q, k, v, is_causal=False):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if is_causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v
"""
ALONE = """
import sys
from attn_exp.cli import check_in_child
print(check_in_child(sys.argv[1:], lambda said: None)["text"])
"""


def timed(checkout: Path, start: list[str], words: list[str], folder: str) -> tuple[float, float]:
    """Return the seconds of the wall and of the processor that a check takes in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, begin = os.times(), perf_counter()
    subprocess.run(
        [sys.executable, *start, *words], cwd=folder, env=environment | {"PYTHONPATH": str(checkout)}, check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    seconds, after = perf_counter() - begin, os.times()
    return seconds, sum(after[2:4]) - sum(before[2:4])


def main() -> None:
    """Measure, and print a line for each kind of check."""
    parser = argparse.ArgumentParser(description="What a check in a child process costs.")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--base", type=Path, help="another checkout, whose command is the measure")
    given = parser.parse_args()
    command = ["-m", "attn_exp", "check"]
    other, start = (ROOT, ["-c", ALONE]) if given.base is None else (given.base.resolve(), command)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mine.py").write_text(MINE)
        for more in (["--quick"], []):
            words = ["mine.py:attention", *more]
            pairs = [
                (timed(ROOT, command, words, folder), timed(other, start, words, folder)) for _ in range(given.repeats)
            ]
            for place, name in enumerate(("wall", "processor")):
                here, there = (min(pair[side][place] for pair in pairs) for side in (0, 1))
                print(f"check {' '.join(more):8} {name:10} {here:.3f} s, {there:.3f} s: {here / there:.2f}", flush=True)


if __name__ == "__main__":
    main()
