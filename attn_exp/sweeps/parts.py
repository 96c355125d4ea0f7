"""Results on disk while a sweep runs: one part per chunk, whole or not at all, under a name that seals it.

A part is called `<chunk>-<lines>-<hash>.csv`, with `-failed<count>` after the chunk where points failed. A part whose
lines or hash are not those of its name is damaged: it counts for nothing, and its chunk is computed again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from attn_exp import drafts, machine, parsing, system
from attn_exp.runs.records import texts
from attn_exp.runs.trust import DamagedError
from attn_exp.sweeps import parquet
from attn_exp.sweeps.answers.cube import OK
from attn_exp.sweeps.task import as_csv

NAME = re.compile(r"([0-9a-f]{24})(?:-failed(\d{1,9}))?(?:-(\d{1,12})-([0-9a-f]{16}))?\.(csv|parquet)")
MOST_DIGITS = 20
PIECE, MOST_BYTES = 2**20, 2**30
"""Bytes that are hashed at once, and more than any part has."""


@dataclass(frozen=True)
class Part:
    """One part: its file, its chunk, how many of its points failed, and what its name seals it with.

    `lines` and `digest` are missing in the names of parts that were written before there were any.
    """

    path: Path
    chunk: str
    failed: int
    lines: int | None = None
    digest: str = ""


@dataclass(frozen=True)
class Draft:
    """A part that is not written yet, and what its file will hold."""

    part: Part
    data: bytes


@dataclass(frozen=True)
class Inventory:
    """The parts that are there: those that fit their names by chunk, and the names of the damaged ones."""

    whole: dict[str, Part] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shelf:
    """Where the parts of a sweep lie, the columns they have, for Parquet their types, and whether names seal them.

    The first `shown` columns are those of the results.
    """

    folder: Path
    head: Sequence[str]
    shown: int
    types: Mapping[str, str] | None = None
    sealed: bool = True

    @property
    def suffix(self) -> str:
        """How the files of parts end."""
        return "csv" if self.types is None else "parquet"

    def find(self, wanted: Collection[str]) -> Inventory:
        """Return the parts of these chunks, each read through to see whether it is as it was written."""
        whole: dict[str, Part] = {}
        damaged: dict[str, str] = {}
        names = set(wanted)
        for part in parts_in(self.folder, self.suffix):
            if part.chunk in names:
                if self.fits(part):
                    whole[part.chunk] = better(whole.get(part.chunk), part)
                else:
                    damaged[part.path.name] = part.chunk
        return Inventory(whole, tuple(name for name, chunk in damaged.items() if chunk not in whole))

    def fits(self, part: Part) -> bool:
        """Say whether a part holds what its name says; where names seal nothing, whether it is a table at all."""
        try:
            if part.digest:
                return sealed_by(part.path, part.chunk) == (part.lines, part.digest)
            reads = is_table if self.types is None else parquet.is_table
            return not self.sealed and reads(part.path, self.head)
        except (OSError, ValueError):
            return False

    def draft(self, chunk: str, lines: bytes, failed: int) -> Draft:
        """Return the part of a chunk as it is to be written."""
        text = as_csv([self.head]) + lines
        data = text if self.types is None else parquet.encoded(text, self.types)
        count, digest = data.count(b"\n"), digest_of(chunk, [data])
        failures = f"-failed{failed}" if failed else ""
        path = self.folder / f"{chunk}{failures}-{count}-{digest}.{self.suffix}"
        return Draft(Part(path, chunk, failed, count, digest), data)

    def write(self, ready: Sequence[Draft]) -> None:
        """Write parts, so that they survive a loss of power, and remove older ones of the same chunks."""
        drafts.write_together({draft.part.path: draft.data for draft in ready})
        newest = {draft.part.chunk: draft.part.path for draft in ready}
        for part in list(parts_in(self.folder, self.suffix)):
            if newest.get(part.chunk, part.path) != part.path:
                part.path.unlink()

    def lines(self, parts: Sequence[Part]) -> Iterator[list[str]]:
        """Yield what the lines of parts say, a part at a time.

        Raises:
            DamagedError: a part cannot be read.
        """
        return map(texts, self.cells(parts))

    def cells(self, parts: Sequence[Part]) -> Iterator[list[str]]:
        """Yield the lines of parts as they are written, texts after an apostrophe where a spreadsheet could run them.

        Raises:
            DamagedError: a part cannot be read.
        """
        paths = [part.path for part in parts]
        yield from csv_lines(paths, len(self.head)) if self.types is None else parquet.lines(paths)

    def good_lines(self, part: Part) -> dict[int, list[list[str]]]:
        """Return the lines of the points of a part that did not fail."""
        status = self.head.index("status")
        kept: dict[int, list[list[str]]] = {}
        for line in self.cells([part]):
            if line[status] == OK:
                kept.setdefault(int(line[0]), []).append(line)
        return kept

    def joined(self, parts: Sequence[Part]) -> Iterator[bytes]:
        """Yield the table of the results, a part at a time."""
        yield as_csv([self.head[: self.shown]])
        for part in parts:
            if self.shown == len(self.head):
                yield machine.read(part.path, MOST_BYTES).partition(b"\n")[2]
            else:
                yield as_csv([line[: self.shown] for line in self.cells([part])])


def parts_in(folder: Path, suffix: str) -> Iterator[Part]:
    """Yield the parts in a folder in the order of their names, as they say they are."""
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            match = NAME.fullmatch(path.name)
            if match and match[5] == suffix:
                yield Part(path, match[1], int(match[2] or 0), int(match[3]) if match[3] else None, match[4] or "")


def better(one: Part | None, other: Part) -> Part:
    """Of two parts of one chunk, left by a kill between two writes, return the one with fewer failures."""
    return one if one is not None and one.failed <= other.failed else other


def sealed_by(path: Path, chunk: str) -> tuple[int, str]:
    """Return how many lines a file has and the hash that its name should have."""
    digest, lines = hashlib.sha256(f"{chunk}\n".encode()), 0
    check_size(path)
    with machine.opened(path) as file:
        while piece := file.read(PIECE):
            digest.update(piece)
            lines += piece.count(b"\n")
    return lines, digest.hexdigest()[:16]


def check_size(path: Path) -> None:
    """Refuse a file larger than any part, which would take for ever to read.

    Raises:
        DamagedError: it is larger.
    """
    if path.stat().st_size > MOST_BYTES:
        raise DamagedError(f"{path.name} is larger than {MOST_BYTES:,} bytes")


def digest_of(chunk: str, pieces: Sequence[bytes]) -> str:
    """Return the hash of a part's contents and of the chunk that it belongs to."""
    digest = hashlib.sha256(f"{chunk}\n".encode())
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()[:16]


def is_table(path: Path, head: Sequence[str]) -> bool:
    """Say whether a file is a table of such lines, each of a point."""
    check_size(path)
    lines = csv_lines([path], len(head), skip=0)
    return next(lines, None) == list(head) and all(line[0].isdecimal() for line in lines)


def csv_lines(paths: Sequence[Path], width: int, skip: int = 1) -> Iterator[list[str]]:
    """Yield the lines of tables without their heads.

    Raises:
        DamagedError: a line of another number of cells, or one that does not begin with the number of a point.
    """
    for path in paths:
        for line in islice(parsing.csv_lines(path), skip, None):
            if len(line) != width:
                raise DamagedError(f"{path.name} has a line of {len(line)} cells; expected {width}")
            if skip and not (line[0].isdecimal() and len(line[0]) < MOST_DIGITS):
                raise DamagedError(f"{path.name} has a line of no point")
            yield line


def merged(pieces: Sequence[bytes], kept: Mapping[int, Sequence[Sequence[str]]]) -> bytes:
    """Return the lines of several pieces and of points kept from before, in the order of the points."""
    lines = [line for point in kept.values() for line in point]
    for piece in pieces:
        lines += parsing.parse_csv(piece.decode("utf-8"), most=MOST_BYTES)
    return as_csv(sorted(lines, key=lambda line: int(line[0])))


ASIDE = "parts-of-other-versions"


def tidy(folder: Path, wanted: Sequence[str]) -> None:
    """Remove what a kill left half-written, and set aside the parts of other versions of this sweep.

    What was set aside and is wanted again comes back. A link is no folder of ours: nothing is moved through it.
    """
    aside, names = folder.with_name(ASIDE), set(wanted)
    for place in (folder, *(path for path in (folder.parent, *folder.parent.iterdir()) if path.is_dir())):
        if not place.is_symlink():
            drafts.sweep_up(place, older=0.0)  # nobody else writes here: the sweep is locked
    for source, target, belongs in ((folder, aside, False), (aside, folder, True)):
        for path in list(source.iterdir()) if source.is_dir() and not source.is_symlink() else ():
            match = NAME.fullmatch(path.name)
            if match and (match[1] in names) == belongs and not path.is_dir():
                system.replace(path, machine.own_folder(target) / path.name)
