"""A sweep's table from its parts, and what is said of it."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attn_exp.sweep import lock, manifest, parts
from attn_exp.sweep.parts import Part
from attn_exp.sweep.summary import summarized


def results(folder: Path, told: Mapping[str, Any]) -> Path:
    """Return where the one table of a sweep is: a file, or the folder of a Parquet data set."""
    return folder / "results.csv" if told["format"] == "csv" else folder / "parts"


def write(folder: Path, told: Mapping[str, Any], found: Mapping[str, Part]) -> None:
    """Write the table, the report and the manifest of what is there; partial ones say so."""
    there = [found[name] for name in told["parts"] if name in found]
    join(folder / "results.csv", parts.joined(told["columns"], there))
    summary = summarized(told["columns"], lines(there), told["axes"])
    manifest.write(folder, {**told, "done": summary.points - summary.failed, "failed": summary.failed})


def join(path: Path, pieces: Iterator[bytes]) -> None:
    """Write a file from pieces, whole or not at all, without holding all of it."""
    spare = path.with_name(f".{path.name}.part")
    try:
        with spare.open("wb") as file:
            file.writelines(pieces)
        spare.replace(path)
    except BaseException:
        spare.unlink(missing_ok=True)
        raise


def lines(there: list[Part]) -> Iterator[list[str]]:
    """Yield the lines of all parts, in order, a part at a time."""
    for each in there:
        with each.path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            next(reader)
            yield from reader


def again(folder: Path) -> None:
    """Rebuild a sweep's table and report from its parts.

    Raises:
        UserError: no sweep there, or one that is running now.
    """
    about = manifest.load(folder)
    with lock.held(folder):
        write(folder, about, parts.find(folder / "parts", about["format"]))


def told(folder: Path) -> str:
    """Return what a sweep prints at its end."""
    return str(folder)
