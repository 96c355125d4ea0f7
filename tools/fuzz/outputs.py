"""Whatever somebody may have done to an output folder: commands on it say so in a line, and touch nothing else.

A run and a sweep are made once; each attempt copies them, does a few harmful things to the copy, and tries every
command on it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tools.fuzz._folders import attempted, files, tried, twist
from tools.fuzz._processes import done_once, kept_folder

SMALL = ["variant=[matrix]", "report=tables"]
SWEEP = ["-m", *SMALL, "seed=0,1,2", "head=1,2", "sweep.name=s", "sweep.engine=serial", "sweep.chunk=2"]
RUN = "20260101-000000-aaaaaa"
COMMANDS = [
    ["index"], ["open"], ["runs"], ["status", "outputs/sweeps/s"], ["collect", "outputs/sweeps/s"],
    ["report", f"outputs/runs/{RUN}"], ["report", "outputs/sweeps/s"], ["open", f"outputs/runs/{RUN}"],
    ["rerun", f"outputs/runs/{RUN}"], ["rerun", "outputs/sweeps/s", "3"], SMALL, SWEEP,
]  # fmt: skip

DEEP = "[" * 50_000 + "]" * 50_000
TEXTS = [DEEP, "", "{}", "[]", "null", "\x00" * 999, '{"a":' * 9000]
OPENED = ("lock", "manifest.json", "run.json", "results.csv")

Harm = Callable[[random.Random, Path], None]


@cache
def pattern() -> Path:
    """Make a run and a sweep once, and return the folder that holds them."""
    folder = kept_folder("outputs-")
    for words in (SMALL, SWEEP):
        done_once(folder, words)
    (run,) = (folder / "outputs" / "runs").iterdir()
    run.rename(run.with_name(RUN))
    return folder


def flip(chance: random.Random, outputs: Path) -> None:
    path = chance.choice(files(outputs))
    data = bytearray(path.read_bytes())
    for _ in range(chance.randrange(1, 5)):
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)
    path.write_bytes(data)


def cut(chance: random.Random, outputs: Path) -> None:
    path = chance.choice(files(outputs))
    path.write_bytes(path.read_bytes()[: chance.randrange(1 + path.stat().st_size)])


def swap(chance: random.Random, outputs: Path) -> None:
    one, other = chance.choice(files(outputs)), chance.choice(files(outputs))
    one.write_bytes(other.read_bytes())


def fill(chance: random.Random, outputs: Path) -> None:
    chance.choice(files(outputs)).write_text(chance.choice(TEXTS))


def special(chance: random.Random, outputs: Path) -> None:
    """Put something that is no file in a file's place; as often as not, of one that every command opens."""
    opened = [path for path in files(outputs) if path.name in OPENED]
    path = chance.choice(chance.choice((files(outputs), opened or files(outputs))))
    path.unlink()
    kind = chance.randrange(4)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(10**11)


def link(chance: random.Random, outputs: Path) -> None:
    """Let a name that is written to lead to somebody else's file or folder."""
    folders = [path for path in outputs.rglob("*") if path.is_dir() and not path.is_symlink()]
    places = [*files(outputs), *folders]
    names = ["lock", "parts", "plots", "figures", "tables", ".manifest.json.part",
             ".results.csv.part", "index.html", "latest"]  # fmt: skip
    places += [folder / name for folder in folders for name in names]
    path = chance.choice(places)
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    if path.parent.is_dir():
        foreign = outputs.parent / "foreign"
        path.symlink_to(foreign if chance.random() < 0.5 else foreign / "file")


def drop(chance: random.Random, outputs: Path) -> None:
    """Take a key out of a description."""
    path = chance.choice([path for path in files(outputs) if path.suffix == ".json"] or files(outputs))
    try:
        about = json.loads(path.read_text())
        about.pop(chance.choice(list(about)))
    except (ValueError, AttributeError, IndexError, TypeError, RecursionError):
        return
    about.pop("seal", None)
    path.write_text(json.dumps(about))


def rename(chance: random.Random, outputs: Path) -> None:
    path = chance.choice([*files(outputs), *(path for path in outputs.glob("*/*") if path.is_dir())])
    name = chance.choice(["\x1b[31mred", os.fsdecode(b"half\xff"), "x" * 200, "a\nb", "-m", "'\"<b>", path.name + "~"])
    path.rename(path.with_name(name))


HARMS: list[Harm] = [flip, cut, swap, fill, special, link, link, twist, twist, twist, drop, rename]


def attempt(seed: int) -> str | None:
    """Harm a copy of an output folder, try a command on it, and return what fell."""
    chance = random.Random(seed)
    with attempted(pattern() / "outputs") as here:
        harms = [chance.choice(HARMS) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
        for harm in harms:
            if files(here / "outputs"):
                harm(chance, here / "outputs")
        words = chance.choice(COMMANDS)
        fell = tried(here, words)
        return fell and f"{'+'.join(harm.__name__ for harm in harms)}, {' '.join(words)}: {fell}"
