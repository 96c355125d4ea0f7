"""A folder in which an attempt tries a command: an output folder, and one of somebody else beside it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.fuzz._processes import SECONDS, run

SECRET, MOST_BYTES = "hush-hush", 10**8

ODD: list[Any] = [
    None, 0, -1, 1.5, True, "", "x", [], [[]], {}, {"a": 1}, [4, 0], [1, "two", None], 10**30, 2**31, 2**32 - 1, 2**63,
    1e308, 1e300, 1e-320, float("nan"), float("inf"), "nan", "array", "\ud800", "\x1b[31m\ud800", "../../foreign",
    "/tmp/foreign", "${oc.env:SECRET}",
]  # fmt: skip
"""Values that belong nowhere."""


@contextlib.contextmanager
def attempted(outputs: Path | None = None) -> Iterator[Path]:
    """Give a folder with a copy of this output folder, or an empty one, and with a folder that is somebody else's."""
    with tempfile.TemporaryDirectory(prefix="attempt-") as name:
        here = Path(name)
        if outputs is None:
            (here / "outputs").mkdir()
        else:
            shutil.copytree(outputs, here / "outputs", symlinks=True)
        (here / "foreign").mkdir()
        (here / "foreign" / "file").write_text("mine")
        yield here


def tried(here: Path, words: Sequence[str]) -> str | None:
    """Try a command in such a folder, and return what is wrong with what it did."""
    code, text = run(here, words, lambda: os.environ.update(SECRET=SECRET))
    if code is None:
        return f"hung for {SECONDS} s"
    outputs = here / "outputs"
    foreign = sorted(path.name for path in (here / "foreign").iterdir())
    lines = [line for line in text.splitlines() if line.startswith("attn_exp: error: ")]
    wrong = {
        f"exit code {code}: {(text.strip() or '-').splitlines()[-1]}": "Traceback" in text or code not in (0, 1, 2),
        f"{len(lines)} lines with exit code 2: {text[-200:]!r}": (code == 2) != (len(lines) == 1),
        "nothing was said": code == 1 and not text.strip(),
        "a control character was printed": any(ord(letter) < 32 and letter not in "\n\t" for letter in text),
        "the environment was read": any(SECRET.encode() in place for place in (text.encode(), *contents(outputs))),
        "something was written beside the output folder": sorted(os.listdir(here)) != ["foreign", "outputs"],
        "a foreign byte was written": foreign != ["file"] or (here / "foreign" / "file").read_text() != "mine",
        "a draft is left": any(here.rglob(".attn-exp-draft-*")),
    }
    return next((message for message, is_so in wrong.items() if is_so), None)


def files(folder: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sorted(path for path in found if path.stat().st_size < MOST_BYTES)


def contents(folder: Path) -> list[bytes]:
    """Return what the files of a folder hold that can be read whole."""
    return [path.read_bytes() for path in files(folder)]


def twisted(chance: random.Random, value: Any) -> Any:
    """Return plain values with one of them exchanged, taken away or put in deeper."""
    if isinstance(value, dict | list) and value and chance.random() < 0.8:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = chance.choice(keys)
        copy: Any = dict(value) if isinstance(value, dict) else list(value)
        if chance.random() < 0.15:
            del copy[key]
        else:
            copy[key] = twisted(chance, copy[key])
        return copy
    return chance.choice([*ODD, [value] * 3, {"a": value}])


def twist(chance: random.Random, folder: Path) -> None:
    """Put a value of a wrong kind into a description, and as often as not take off its seal."""
    path = chance.choice([path for path in files(folder) if path.suffix == ".json"] or files(folder))
    try:
        about = twisted(chance, json.loads(path.read_text()))
    except (ValueError, RecursionError):
        return
    if isinstance(about, dict) and chance.random() < 0.5:
        about.pop("seal", None)
        about.pop("files", None)
    path.write_text(json.dumps(about))
