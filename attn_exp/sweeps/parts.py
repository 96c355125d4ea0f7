"""Results on disk while a sweep runs: one part per chunk, written atomically, with its hash in the file name.

A part is called `<chunk>-<hash>.csv`, with `-failed<count>` after the chunk if points failed. A part whose hash does
not match its name is damaged: it is ignored, and its chunk is computed again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from attn_exp import drafts, machine, parsing
from attn_exp.runs.records import texts
from attn_exp.runs.trust import DamagedError
from attn_exp.sweeps import parquet
from attn_exp.sweeps.answers.cube import OK
from attn_exp.sweeps.task import as_csv

NAME = re.compile(r"([0-9a-f]{24})(?:-failed(\d{1,9}))?-([0-9a-f]{16})\.(csv|parquet)")
MOST_DIGITS = 20
MOST_BYTES = 2**30
"""Size limit of a part."""


@dataclass(frozen=True)
class Part:
    """One part: its file, its chunk, and its number of failed points."""

    path: Path
    chunk: str
    failed: int


@dataclass(frozen=True)
class Inventory:
    """The existing parts: the intact ones by chunk, and the names of the damaged ones."""

    whole: dict[str, Part] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shelf:
    """The folder with the parts of a sweep, their columns and, for Parquet, the types of these.

    The first `shown` columns are those of the results.
    """

    folder: Path
    head: Sequence[str]
    shown: int
    types: Mapping[str, str] | None = None

    def find(self, wanted: Collection[str]) -> Inventory:
        """Return the parts of these chunks, verifying the hash of each."""
        whole: dict[str, Part] = {}
        damaged: dict[str, str] = {}
        names, suffix = set(wanted), "csv" if self.types is None else "parquet"
        for path, match in sorted(find_parts(self.folder).items()):
            chunk, failed = match[1], int(match[2] or 0)
            if chunk not in names or match[4] != suffix:
                continue
            if not is_whole(path, chunk, match[3]):
                damaged[path.name] = chunk
            elif chunk not in whole or failed < whole[chunk].failed:  # a kill may leave two parts of one chunk
                whole[chunk] = Part(path, chunk, failed)
        return Inventory(whole, tuple(name for name, chunk in damaged.items() if chunk not in whole))

    def write(self, chunk: str, lines: bytes, failed: int) -> Part:
        """Write the part of a chunk, so that it survives a loss of power, and remove older ones."""
        data = as_csv([self.head]) + lines
        data = data if self.types is None else parquet.encoded(data, self.types)
        name = f"{chunk}-failed{failed}" if failed else chunk
        path = self.folder / f"{name}-{digest_of(chunk, data)}.{'csv' if self.types is None else 'parquet'}"
        drafts.write(path, data, sync=True)
        for older in self.folder.glob(f"{chunk}-*"):
            if older != path:
                older.unlink()
        return Part(path, chunk, failed)

    def lines(self, parts: Sequence[Part]) -> Iterator[list[str]]:
        """Yield the texts in the lines of parts, a part at a time.

        Raises:
            DamagedError: a part cannot be read.
        """
        return map(texts, self.cells(parts))

    def cells(self, parts: Sequence[Part]) -> Iterator[list[str]]:
        """Yield the raw cells of parts, in which an apostrophe may precede a text.

        Raises:
            DamagedError: a line has another number of cells, or does not begin with the number of a point.
        """
        for part in parts:
            path = part.path
            for line in islice(parsing.csv_lines(path), 1, None) if self.types is None else parquet.lines(path):
                if len(line) != len(self.head):
                    raise DamagedError(f"{path.name} has a line of {len(line)} cells; expected {len(self.head)}")
                if not (line[0].isdecimal() and len(line[0]) < MOST_DIGITS):
                    raise DamagedError(f"{path.name} has a line of no point")
                yield line

    def good_lines(self, part: Part) -> dict[int, list[list[str]]]:
        """Return the lines of those points of a part that did not fail."""
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


def find_parts(folder: Path) -> dict[Path, re.Match[str]]:
    """Return the files in a folder that are named like parts; none if the folder is a link or missing."""
    paths = folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ()
    return {path: match for path in paths if (match := NAME.fullmatch(path.name))}


def is_whole(path: Path, chunk: str, digest: str) -> bool:
    """Return whether the hash of a part matches its name."""
    try:
        return digest_of(chunk, machine.read(path, MOST_BYTES)) == digest
    except OSError:
        return False


def digest_of(chunk: str, data: bytes) -> str:
    """Return the hash of a part's contents and its chunk."""
    return hashlib.sha256(f"{chunk}\n".encode() + data).hexdigest()[:16]


def merged(pieces: Sequence[bytes], kept: Mapping[int, Sequence[Sequence[str]]]) -> bytes:
    """Merge the lines of several pieces and of points kept from before, in the order of the points."""
    lines = [line for point in kept.values() for line in point]
    for piece in pieces:
        lines += parsing.parse_csv(piece.decode("utf-8"), most=MOST_BYTES)
    return as_csv(sorted(lines, key=lambda line: int(line[0])))
