"""Results on disk while a sweep runs: one part per chunk, whole or not at all."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from attn_exp import machine
from attn_exp.sweep import parquet
from attn_exp.sweep.task import OK, as_csv

NAME = re.compile(r"([0-9a-f]{24})(?:-failed(\d+))?\.(csv|parquet)")


@dataclass(frozen=True)
class Part:
    """One part: its file, and how many of its points failed."""

    path: Path
    failed: int


@dataclass(frozen=True)
class Shelf:
    """Where the parts of a sweep lie, the columns they have, and for Parquet their types."""

    folder: Path
    head: Sequence[str]
    types: Mapping[str, str] | None = None

    @property
    def suffix(self) -> str:
        return "csv" if self.types is None else "parquet"

    def find(self) -> dict[str, Part]:
        """Return the parts that are there by the name of their chunk."""
        return find(self.folder, self.suffix)

    def write(self, name: str, lines: bytes, failed: int) -> Part:
        """Write the part of a chunk and remove an older one of the same chunk."""
        path = self.folder / (f"{name}-failed{failed}.{self.suffix}" if failed else f"{name}.{self.suffix}")
        text = as_csv([self.head]) + lines
        machine.write(path, text if self.types is None else parquet.encoded(text, self.types))
        for older in self.folder.glob(f"{name}*.{self.suffix}"):
            if older != path:
                older.unlink()
        return Part(path, failed)

    def lines(self, found: Sequence[Part]) -> Iterator[list[str]]:
        """Yield the lines of parts, a part at a time."""
        paths = [each.path for each in found]
        yield from csv_lines(paths) if self.types is None else parquet.lines(paths)

    def good_lines(self, part: Part) -> dict[int, list[list[str]]]:
        """Return the lines of the points of a part that did not fail."""
        status = self.head.index("status")
        kept: dict[int, list[list[str]]] = {}
        for line in self.lines([part]):
            if line[status] == OK:
                kept.setdefault(int(line[0]), []).append(line)
        return kept


def find(folder: Path, suffix: str) -> dict[str, Part]:
    """Return the parts in a folder by the name of their chunk."""
    found: dict[str, Part] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        match = NAME.fullmatch(path.name)
        if match and match[3] == suffix:
            found[match[1]] = better(found.get(match[1]), Part(path, int(match[2] or 0)))
    return found


def better(one: Part | None, other: Part) -> Part:
    """Of two parts of one chunk, left by a kill between two writes, return the one with fewer failures."""
    return one if one is not None and one.failed <= other.failed else other


def csv_lines(paths: Sequence[Path]) -> Iterator[list[str]]:
    for path in paths:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            next(reader)
            yield from reader


def merged(pieces: Sequence[bytes], kept: Mapping[int, Sequence[Sequence[str]]]) -> bytes:
    """Return the lines of several pieces and of points kept from before, in the order of the points."""
    lines = [line for each in kept.values() for line in each]
    for piece in pieces:
        lines += csv.reader(StringIO(piece.decode("utf-8"), newline=""))
    return as_csv(sorted(lines, key=lambda line: int(line[0])))


def body(path: Path) -> bytes:
    """Return the lines of a part without its head."""
    return path.read_bytes().partition(b"\n")[2]


def joined(head: Sequence[str], parts: Sequence[Part]) -> Iterator[bytes]:
    """Yield the whole table, a part at a time."""
    yield as_csv([head])
    for each in parts:
        yield body(each.path)


def tidy(folder: Path, wanted: Sequence[str]) -> None:
    """Remove what a kill left half-written, and set aside the parts of other versions of this sweep.

    What was set aside and is wanted again comes back.
    """
    aside, names = folder.with_name("parts-of-other-versions"), set(wanted)
    for path in (*folder.iterdir(), *folder.parent.iterdir()):
        if machine.SPARE.fullmatch(path.name) and not path.is_dir():
            path.unlink()
    for source, target, belongs in ((folder, aside, False), (aside, folder, True)):
        for path in list(source.iterdir()) if source.is_dir() else ():
            match = NAME.fullmatch(path.name)
            if match and (match[1] in names) == belongs:
                target.mkdir(exist_ok=True)
                path.replace(target / path.name)
