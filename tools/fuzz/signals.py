"""Commands that write, ended by a signal at a random moment: nothing is half, left or foreign and changed.

Runs, sweeps and a class are made once; each attempt copies them, starts a command in a session of its own, ends it,
and looks at every file that is there. After a kill the same command runs again, and must sweep up.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

from tools.fuzz._processes import SECONDS, Command, done_once, kept_folder

RUNS = ("20260101-000000-aaaaaa", "20260101-000001-bbbbbb")
STUDENTS = 20
SMALL = ["variant=[matrix]", "report=tables"]
SWEEP = ["variant=[matrix,scaled]", "report=tables", "seed=range(0,40)", "sweep.chunk=4", "sweep.workers=2"]
COMMANDS: dict[str, list[str]] = {
    "run": SMALL,
    "run with figures": ["variant=[matrix,scaled]", "report=full", "figures.format=[svg,png]"],
    "sweep": ["-m", *SWEEP, "head=1,2", "sweep.name=new"],
    "sweep with figures": ["-m", *SWEEP[:-3], "seed=range(0,6)", "report=full", "sweep.name=drawn"],
    "sweep to Parquet": ["-m", *SWEEP, "sweep.format=parquet", "sweep.name=columns"],
    "sweep again": ["-m", *SWEEP, "seed=range(0,80)", "sweep.name=first"],
    "sheet": ["sheet", f"seed=range(0,{STUDENTS})", "embeddings=random", "to=deep/new"],
    "one sheet": ["sheet", "seed=3", "to=alone"],
    "grade": ["grade", "class/answers", "class/key"],
    "report": ["report", f"outputs/runs/{RUNS[0]}", "figures.format=[svg,png,pdf]"],
    "report of latest": ["report", "outputs/latest"],
    "report of a sweep": ["report", "outputs/sweeps/first"],
    "index": ["index"],
    "rerun": ["rerun", f"outputs/runs/{RUNS[0]}"],
    "rerun a point": ["rerun", "outputs/sweeps/first", "3"],
    "collect": ["collect", "outputs/sweeps/first"],
    "compare": ["compare", *(f"outputs/runs/{run}" for run in RUNS)],
    "compare sweeps": ["compare", "outputs/sweeps/first", "outputs/sweeps/second"],
    "new": ["new", "mine/notebook"],
}
SIGNALS = [signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGHUP]
WORKS_ON = {"results.npz", "comparison.csv", "run.json", "timings.csv"}
"""Files of the runs that were there, which no command changes."""


@cache
def pattern() -> Path:
    """Make two runs, two sweeps and a class once, and return the folder that holds them."""
    home = kept_folder("signals-")
    sweeps = [["-m", *SWEEP, "sweep.name=first"], ["-m", *SWEEP, "scale=false", "sweep.name=second"]]
    sheets = ["sheet", f"seed=range(0,{STUDENTS})", "embeddings=random", "to=class"]
    for words in (SMALL, [*SMALL, "head=2"], *sweeps, sheets):
        done_once(home, words)
    runs = sorted((home / "outputs/runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for run, name in zip(runs, RUNS, strict=True):
        run.rename(run.with_name(name))
    (home / "outputs/latest").unlink()
    (home / "outputs/latest").symlink_to(f"runs/{RUNS[1]}")
    for path in (home / "class/answers").iterdir():
        path.write_text(path.read_text().replace(",", ",0.5", 40))
    return home


@cache
def duration(command: str, fresh: bool) -> float:
    """Return how long a command takes that nobody ends."""
    with copied() as here:
        start = time.monotonic()
        line = Command(here, COMMANDS[command], fresh=fresh)
        code = line.wait(60)
        line.end()
        if code != 0:
            raise RuntimeError(f"{command} ends with {code}: {line.text()[-300:]}")
        return time.monotonic() - start


class copied:  # noqa: N801 - read as a verb
    """A copy of the pattern, for an attempt."""

    def __enter__(self) -> Path:
        self.home = Path(tempfile.mkdtemp(prefix="attempt-"))
        shutil.copytree(pattern(), self.home, symlinks=True, dirs_exist_ok=True)
        for folder in ("outputs", "outputs/runs", "outputs/sweeps/first", "class", "class/answers"):
            (self.home / folder / "mine.txt").write_text("mine")
        return self.home

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.home, ignore_errors=True)


def attempt(seed: int) -> str | None:
    """End a command at a random moment, and return what fell."""
    chance = random.Random(seed)
    command, sign, fresh = chance.choice(list(COMMANDS)), chance.choice(SIGNALS), chance.random() < 0.25
    moment = chance.random() * 1.1
    told = f"{command}{' (fresh)' * fresh}, {sign.name} at {moment:.2f}"
    seconds = duration(command, fresh)
    with copied() as here:
        before = known(here)
        line = Command(here, COMMANDS[command], fresh=fresh)
        time.sleep(moment * seconds)
        os.kill(line.child, sign)
        code = line.wait(SECONDS)
        left = line.left_behind() if code is not None else []
        line.end()
        if code is None:
            return f"{told}: hung for {SECONDS} s"
        fell = f"{len(left)} processes live on" if left else wrong(here, fresh, sign, code, line.text(), before)
        if (fell is None and sign == signal.SIGKILL) or chance.random() < 0.2:
            fell = fell or again(here, command, before)
        return fell and f"{told}: {fell}"


def wrong(here: Path, fresh: bool, sign: signal.Signals, code: int, text: str, before: dict[str, str]) -> str | None:
    """Return what is wrong with what a command left that a signal has ended."""
    if fresh and "KeyboardInterrupt" in text and ("_get_module_details" in text or "attn_exp" not in text):
        return None  # before Python had begun with the first line of the program
    if "Traceback" in text and "attn_exp" in text:
        lines = [line.strip() for line in text.splitlines()]
        kinds = ("Error", "Interrupt", "Stopped", "Exit")
        said = next((line for line in reversed(lines) if any(kind in line for kind in kinds)), "?")
        return f"traceback: {said}, {text[-1500:]!r}"
    if code not in (0, 128 + sign, -sign):
        return f"exit code {code}: {text[-200:]}"
    if sign != signal.SIGKILL and (drafts := hidden(here)):
        return f"left: {drafts[0]}"
    return next(halves(here, sign == signal.SIGKILL), None) or changed(before, here)


def again(here: Path, command: str, before: dict[str, str]) -> str | None:
    """Run the command once more to its end, and return what is wrong then."""
    made = {"sheet": "deep/new", "one sheet": "alone", "new": "mine/experiment/notebook.yaml"}
    whole = command in made and (here / made[command]).exists()
    line = Command(here, COMMANDS[command])
    code = line.wait(60)
    line.end()
    if code != (2 if whole else 0):
        return f"once more, it ends with {code}: {line.text()[-200:]}"
    if drafts := [] if whole else hidden(here):
        return f"left for ever: {drafts[0]}"
    return next(halves(here), None) or changed(before, here)


def hidden(here: Path) -> list[str]:
    """Return what has a hidden name and is not what the index remembers."""
    return [str(path.relative_to(here)) for path in here.rglob(".*") if path.name != ".index.json"]


def known(here: Path) -> dict[str, str]:
    """Return the files that are the user's own or that nothing may change, each with what it holds."""
    files = (path for path in here.rglob("*") if path.is_file() and not path.is_symlink())
    kept = {
        path for path in files
        if path.name in WORKS_ON or path.name == "mine.txt" or "class" in path.relative_to(here).parts[:1]
    }  # fmt: skip
    return {str(path.relative_to(here)): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


def changed(before: dict[str, str], here: Path) -> str | None:
    """Return the first of the files that are not as they were."""
    now = known(here)
    return next((f"changed: {name}" for name, digest in before.items() if now.get(name) != digest), None)


def halves(here: Path, killed: bool = False) -> Iterator[str]:
    """Yield what has its name and is not whole; a sweep is one from its manifest on."""
    for path in here.rglob("*"):
        draft = any(part.startswith(".") for part in path.relative_to(here).parts)
        if path.suffix in ENDS and path.is_file() and not draft and not is_whole(path):
            yield f"half: {path.relative_to(here)}"
    for run in named(here / "outputs/runs"):
        if not {"run.json", "results.npz", "report.md"} <= set(os.listdir(run)):
            yield f"half a run: {sorted(os.listdir(run))}"
    for place in named(here / "outputs/sweeps"):
        if not killed and not (place / "manifest.json").exists():
            yield f"a sweep without a manifest: {sorted(os.listdir(place))}"
    for name, expected in WHOLE.items():
        counts = [len([*(here / name).glob(pattern)]) for pattern in expected]
        if (here / name).exists() and counts != list(expected.values()):
            yield f"half of {name}: {counts}"
    if not (here / "outputs/latest/run.json").is_file():
        yield "latest leads nowhere"


def named(folder: Path) -> list[Path]:
    """Return the folders in a folder that are no drafts."""
    return [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]


def is_whole(path: Path) -> bool:
    """Say whether a file ends as one of its kind does."""
    try:
        return ENDS[path.suffix](path.read_bytes())
    except (ValueError, OSError, csv.Error):
        return False


def is_archive(data: bytes) -> bool:
    """Say whether an archive opens and all of it can be read."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        with np.load(file) as arrays:
            return all(arrays[name] is not None for name in arrays)


def is_table(data: bytes) -> bool:
    """Say whether a table ends with a line's end, and reads."""
    return data.endswith(b"\n") and bool(list(csv.reader(data.decode().splitlines())))


ENDS: dict[str, Callable[[bytes], bool]] = {
    ".html": lambda data: data.rstrip().endswith((b"</html>", b"</table>")),
    ".svg": lambda data: data.rstrip().endswith(b"</svg>"),
    ".png": lambda data: data.endswith(b"IEND\xaeB`\x82"),
    ".pdf": lambda data: data.rstrip().endswith(b"%%EOF"),
    ".json": lambda data: isinstance(json.loads(data), dict),
    ".npz": is_archive,
    ".csv": is_table,
    ".md": lambda data: data.endswith(b"\n"),
    ".parquet": lambda data: data.endswith(b"PAR1"),
    ".yaml": lambda data: data.endswith(b"\n"),
}
"""How a whole file of each kind is told."""

CLASS = {"sheets/seed*": STUDENTS, "answers/seed*": STUDENTS, "key/seed*": 2 * STUDENTS}
WHOLE = {
    "deep/new": CLASS, "class": CLASS, "alone": {"sheet.html": 1, "answers.csv": 1, "key/key.*": 2},
    "class/grades": {"grades.csv": 1, "class.html": 1},
}  # fmt: skip
"""What is in the folders of a class."""
