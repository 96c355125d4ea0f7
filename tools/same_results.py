"""Say whether two checkouts give the same results: python tools/same_results.py BEFORE AFTER

Every line of commands.txt runs in both checkouts, each in a folder of its own, through the command line alone, so the
modules may lie anywhere. What they print, their exit codes and all files are compared byte for byte, without what
differs between any two runs: times, dates, versions, random names. Pages (report.md, .html) count with --pages only.
A command that starts in the folder of another gets the one that BEFORE left: what BEFORE has saved, AFTER must open,
and its report.md always counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

from outcomes import differences, outcome, run_folders

COMMANDS = Path(__file__).with_name("commands.txt")
AT_ONCE, PATIENCE = 2, 180
TOLD = "told.json"

NPY_HEAD = b"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }\n"
CODE = {
    "own_functions.py": b"""import numpy as np


def attention(q, k, v):
    weights = np.exp(q @ np.swapaxes(k, -1, -2))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def layer(x, W_q, W_k, W_v, W_o):
    logits = (x @ W_q) @ np.swapaxes(x @ W_k, -1, -2) / np.sqrt(W_q.shape[-1])
    weights = np.exp(logits)
    return weights / weights.sum(axis=-1, keepdims=True) @ (x @ W_v) @ W_o
""",
    "own_members.py": b"""from dataclasses import dataclass

from attn_exp.experiment.metrics.metric import Metric
from attn_exp.rules.masks.mask import Mask


@dataclass(frozen=True)
class EveryOther(Mask):
    step: int = 2

    def allows(self, grid):
        return (grid.query - grid.key) % self.step == 0


METRICS = [Metric("tokens_seen", lambda subject: float(len(subject.key_tokens)), "tokens that can be seen")]
""",
}
"""Code of a user's own; only a command that names it finds it in its folder."""
FILES = {
    "words.csv": b"she,1,2.5\nlikes,-3e-1,4\n",
    "words.npy": b"\x93NUMPY\x01\x00" + len(NPY_HEAD).to_bytes(2, "little") + NPY_HEAD + bytes(30) + b"\xf0\x3f",
    "a_pickle.npy": b"no array",
    "mine/variant/broken.yaml": b"bad: [\n",
    "mine/embeddings/list.yaml": b"- 1\n",
    "mine/embeddings/own.yaml": b"tokens: [a, b]\nvectors: [[1, 0], [0, 1]]\n",
}


@dataclass(frozen=True)
class Case:
    """One command: its words after `python -m attn_exp`, and the case in whose folder it starts."""

    name: str
    words: tuple[str, ...]
    start: str = ""


@dataclass(frozen=True)
class Checkout:
    """A checkout, the Python that runs it, and the folder that receives one folder per case."""

    root: Path
    python: str
    target: Path


def read_cases(text: str) -> dict[str, Case]:
    """Read lines of `name: words` and `name < start: words`; the words after a [section] end each of its lines."""
    cases: dict[str, Case] = {}
    shared: list[str] = []
    for line in filter(None, text.splitlines()):
        if line.startswith("["):
            shared = shlex.split(line.partition("]")[2])
        elif not line.startswith("#"):
            head, _, words = line.partition(":")
            name, _, start = (part.strip() for part in head.partition("<"))
            if name in cases or (start and start not in cases):
                raise ValueError(f"{COMMANDS.name}: {name} stands there twice, or before {start}")
            cases[name] = Case(name, (*shlex.split(words), *shared), start)
    return cases


def run_cases(checkout: Checkout, cases: Mapping[str, Case], origin: Path) -> None:
    """Run the cases that the target lacks; those that start in another's folder (below `origin`) come last."""
    known = {name for name, case in cases.items() if is_there(checkout.target, case)}
    lacking = [case for case in cases.values() if not known >= {case.name, case.start or case.name}]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for later in (False, True):
            list(pool.map(partial(run_case, checkout, origin), [case for case in lacking if bool(case.start) == later]))


def is_there(target: Path, case: Case) -> bool:
    """Say whether a folder holds what this very command gave."""
    home = target / case.name
    return (home / TOLD).is_file() and tuple(read_told(home)["words"]) == case.words


def read_told(home: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((home / TOLD).read_text(encoding="utf-8"))
    return told


def run_case(checkout: Checkout, origin: Path, case: Case) -> None:
    """Run one command and keep its folder, what it printed and its exit code."""
    home = checkout.target / case.name
    folder = home / "folder"
    shutil.rmtree(home, ignore_errors=True)
    if case.start:
        shutil.copytree(origin / case.start / "folder", folder, symlinks=True)
    code = {name: content for name, content in CODE.items() if any(name in word for word in case.words)}
    for name, content in (FILES | code).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    there = [run.name for run in run_folders(folder)]
    told = command(checkout, ["-m", "attn_exp", *case.words], folder)
    about: dict[str, Any] = {
        "words": case.words, "code": told.returncode, "stdout": told.stdout, "stderr": told.stderr, "there": there,
        "paths": {str(folder): "FOLDER", str(checkout.root): "CHECKOUT"},
    }  # fmt: skip
    (home / TOLD).write_text(json.dumps(about, indent=1), encoding="utf-8")


def command(checkout: Checkout, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(checkout.root), "PYTHONDONTWRITEBYTECODE": "1"}
    line = [checkout.python, *words]
    return subprocess.run(
        line, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def check_imported(checkout: Checkout) -> None:
    """Refuse to compare a checkout whose own package is not the one that runs."""
    told = command(checkout, ["-c", "import attn_exp; print(attn_exp.__file__)"], checkout.target)
    if not Path(told.stdout.strip()).is_relative_to(checkout.root):
        sys.exit(f"{checkout.root}: python -m attn_exp runs {told.stdout.strip() or told.stderr}")


def chosen(cases: Mapping[str, Case], patterns: str) -> dict[str, Case]:
    names = [name for name in cases if any(fnmatch(name, pattern) for pattern in patterns.split(","))]
    starts = {cases[name].start for name in names}
    return {name: case for name, case in cases.items() if name in names or name in starts}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Say whether two checkouts give the same results.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--python", default=sys.executable, help="the Python that runs both (this one)")
    parser.add_argument("--only", default="*", help="names of cases, such as 'rope*,e_*' (all)")
    parser.add_argument("--record", type=Path, help="folder that keeps what BEFORE gave; what it has is not run again")
    parser.add_argument("--pages", action="store_true", help="compare report.md and .html too")
    return parser.parse_args()


def main() -> None:
    """Run both checkouts and compare; exit with 1 where anything differs."""
    words, started = arguments(), time.monotonic()
    cases = chosen(read_cases(COMMANDS.read_text(encoding="utf-8")), words.only)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as spare:
        os.environ["RAY_TMPDIR"] = spare  # in the usual place Ray would join a cluster that somebody else has started
        targets = [(words.record or Path(spare, "before")).resolve(), Path(spare, "after").resolve()]
        for root, target in zip((words.before, words.after), targets, strict=True):
            target.mkdir(parents=True, exist_ok=True)
            checkout = Checkout(root.resolve(), words.python, target)
            check_imported(checkout)
            run_cases(checkout, cases, targets[0])
        failures = 0
        for name in cases:
            found = [outcome(read_told(target / name), target / name / "folder", words.pages) for target in targets]
            lines = list(differences(*found))
            print("\n  ".join([f"{'differs' if lines else 'same':8} {name}", *lines]), flush=True)
            failures += bool(lines)
    print(f"{len(cases)} cases, {failures} differ, {time.monotonic() - started:.0f} s")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
