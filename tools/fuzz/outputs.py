"""Whatever somebody may have done to an output folder: commands on it say so in a line, and touch nothing else.

A run and a sweep are made once; each attempt copies them, does a few harmful things to the copy, and tries every
command on it.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import webbrowser
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from attn_exp import cli

ROOT = Path(__file__).resolve().parents[2]
SECONDS, SECRET, MOST_BYTES = 10, "hush-hush", 10**8
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
WRONG: list[Any] = [None, 0, -1, 1.5, True, "", "x", [], [[]], {}, {"a": 1}, 10**30, "\x1b[31m\ud800", "../../foreign",
                    "/tmp/foreign", "${oc.env:SECRET}", "nan", [1, "two", None], float("nan"), "array"]  # fmt: skip

OPENED = ("lock", "manifest.json", "run.json", "results.csv", ".index.json")

Harm = Callable[[random.Random, Path], None]


@cache
def pattern() -> Path:
    """Make a run and a sweep once, and return the folder that holds them."""
    folder = Path(tempfile.mkdtemp(prefix="outputs-"))
    for words in (SMALL, SWEEP):
        subprocess.run([sys.executable, "-m", "attn_exp", *words], cwd=folder, env=environment(), check=True,
                       capture_output=True)  # fmt: skip
    (run,) = (folder / "outputs" / "runs").iterdir()
    run.rename(run.with_name(RUN))
    return folder


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


def files(outputs: Path) -> list[Path]:
    """Return the files in the folder that can be read whole, in a set order."""
    found = (path for path in outputs.rglob("*") if path.is_file() and not path.is_symlink())
    return sorted(path for path in found if path.stat().st_size < MOST_BYTES)


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
    names = ["lock", "parts", "plots", "figures", "tables", "parts-of-other-versions", ".manifest.json.part",
             ".results.csv.part", "index.html", ".index.json", "latest"]  # fmt: skip
    places += [folder / name for folder in folders for name in names]
    path = chance.choice(places)
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    if path.parent.is_dir():
        foreign = outputs.parent / "foreign"
        path.symlink_to(foreign if chance.random() < 0.5 else foreign / "file")


def twist(chance: random.Random, outputs: Path) -> None:
    """Put a value of a wrong kind into a description."""
    path = chance.choice([path for path in files(outputs) if path.suffix == ".json"] or files(outputs))
    try:
        about = json.loads(path.read_text())
    except (ValueError, RecursionError):
        return
    place = about
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = chance.choice(keys)
        if not isinstance(place[key], dict | list) or not place[key] or chance.random() < 0.4:
            place[key] = chance.choice(WRONG)
            break
        place = place[key]
    if isinstance(about, dict) and chance.random() < 0.5:
        about.pop("seal", None)
        about.pop("files", None)
    path.write_text(json.dumps(about))


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
    with tempfile.TemporaryDirectory(prefix="attempt-") as name:
        here = Path(name)
        shutil.copytree(pattern() / "outputs", here / "outputs", symlinks=True)
        (here / "foreign").mkdir()
        (here / "foreign" / "file").write_text("mine")
        harms = [chance.choice(HARMS) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
        for harm in harms:
            if files(here / "outputs"):
                harm(chance, here / "outputs")
        words = chance.choice(COMMANDS)
        fell = tried(here, words)
        return fell and f"{'+'.join(harm.__name__ for harm in harms)}, {' '.join(words)}: {fell}"


def tried(here: Path, words: list[str]) -> str | None:
    """Try a command in a process of its own, and return what is wrong with what it did."""
    code, text = obeyed(here, words)
    if code is None:
        return f"hung for {SECONDS} s"
    outputs = here / "outputs"
    foreign = sorted(path.name for path in (here / "foreign").iterdir())
    wrong = {
        f"exit code {code}: {(text.strip() or '-').splitlines()[-1]}": "Traceback" in text or code not in (0, 1, 2),
        "a control character was printed": any(ord(letter) < 32 and letter not in "\n\t" for letter in text),
        "the environment was read": any(SECRET.encode() in place for place in (text.encode(), *contents(outputs))),
        "something was written beside the output folder": sorted(os.listdir(here)) != ["foreign", "outputs", "printed"],
        "a foreign byte was written": foreign != ["file"] or (here / "foreign" / "file").read_text() != "mine",
    }
    return next((message for message, is_so in wrong.items() if is_so), None)


def obeyed(here: Path, words: list[str]) -> tuple[int | None, str]:
    """Obey a command in a fork of this process; return its exit code, None where it hangs, and what it printed."""
    printed = here / "printed"
    child = os.fork()
    if not child:
        obey(here, printed, words)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), printed.read_text("utf-8", "replace")
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None, ""


def obey(here: Path, printed: Path, words: list[str]) -> NoReturn:
    """Obey a command as the process of a user would, and end."""
    code = 1
    try:
        os.chdir(here)
        output = os.open(printed, os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = (io.TextIOWrapper(os.fdopen(number, "wb"), "utf-8") for number in (1, 2))
        sys.argv = ["attn-exp", *words]
        os.environ["SECRET"] = SECRET
        webbrowser.open = lambda *given, **more: False
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def contents(folder: Path) -> list[bytes]:
    """Return what the files of a folder hold that can be read whole."""
    return [path.read_bytes() for path in files(folder)]
