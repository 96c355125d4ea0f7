"""The folder of a sweep: its lock, and its results while it runs, in one file per chunk (a part).

A part is written atomically and named `<chunk>-<hash>.csv`, or `<chunk>-failed<count>-<hash>.csv` if points failed. If
the hash does not match the contents, the part is damaged: it is ignored, and its chunk is computed again.

The last column of a part is the key of the point; the table of results does not have it. By this key, points are reused
from parts in which other points failed, and from parts of earlier sweeps, which stay in the folder.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from attn_exp import machine
from attn_exp.errors import UserError
from attn_exp.runs import trust
from attn_exp.runs.trust import DamagedError
from attn_exp.sweeps.plan import Plan
from attn_exp.sweeps.rows import OK
from attn_exp.sweeps.task import as_csv, format_settings

# the file name of a part: its chunk, the number of failed points if there are any, and a hash
NAME = re.compile(r"([0-9a-f]{24})(?:-failed(\d{1,9}))?-([0-9a-f]{16})\.csv")
MOST_DIGITS = 20  # exclusive upper bound on the digits of a point number
MOST_BYTES = 2**30
"""Maximum size of a part in bytes."""
MOST_POINTS = 1_000_000
"""Maximum number of missing points to look for in other parts."""

Lines = list[list[str]]  # lines of CSV, each a list of cells


class Part(NamedTuple):
    """One part: its file, its chunk, and its number of failed points."""

    path: Path
    chunk: str
    failed: int


@dataclass(frozen=True)
class Shelf:
    """The folder with the parts of a sweep; `head` holds the columns of a part."""

    folder: Path
    head: Sequence[str]

    def find(self, wanted: Collection[str]) -> tuple[dict[str, Part], list[str]]:
        """Return the intact parts of the `wanted` chunks, in that order, and the file names of damaged parts."""
        found: dict[str, Part] = {}
        damaged, wanted_chunks = dict[str, str](), set(wanted)
        for path, match in find_parts(self.folder):
            part = Part(path, match[1], int(match[2] or 0))
            if part.chunk in wanted_chunks and not is_intact(path, match):
                damaged[path.name] = part.chunk
            # a killed driver may leave two parts of one chunk; the part with fewer failures is better
            elif part.chunk in wanted_chunks and part.failed <= found.get(part.chunk, part).failed:
                found[part.chunk] = part
        return {name: found[name] for name in wanted if name in found}, [
            name for name, chunk in damaged.items() if chunk not in found
        ]

    def write(self, chunk: str, lines: bytes, failed: int) -> Part:
        """Write the part of a chunk so that it survives a power failure, and remove its older parts."""
        data = as_csv([self.head]) + lines
        name = f"{chunk}-failed{failed}" if failed else chunk
        path = self.folder / f"{name}-{digest_of(chunk, data)}.csv"
        machine.write(path, data, sync=True)
        for older in self.folder.glob(f"{chunk}-*"):
            if older != path:
                older.unlink()
        return Part(path, chunk, failed)

    def cells(self, parts: Sequence[Part]) -> Iterator[list[str]]:
        """Yield the cells of each line of these parts; a string may begin with an apostrophe that escapes it.

        Raises:
            DamagedError: a part has unexpected columns, or a line has the wrong number of cells or no point number.
        """
        for path, *_ in parts:
            lines = machine.csv_lines(path)
            if next(lines, None) != list(self.head):
                raise DamagedError(f"{path.name} has unexpected columns")
            for line in lines:
                if len(line) != len(self.head):
                    raise DamagedError(f"{path.name} has a line of {len(line)} cells; expected {len(self.head)}")
                if not (line[0].isdecimal() and len(line[0]) < MOST_DIGITS):
                    raise DamagedError(f"{path.name} has a line without a point number")
                yield line

    def join_parts(self, parts: Sequence[Part]) -> Iterator[bytes]:
        """Yield the table of results in pieces: its header, and the lines of each part without their keys."""
        yield as_csv([self.head[:-1]])
        for part in parts:
            yield as_csv([line[:-1] for line in self.cells([part])])

    def find_shared(self, plan: Plan, intact: Mapping[str, Part]) -> dict[int, Lines]:
        """Return the lines of missing points that other parts contain, by the number of the point in the plan.

        `intact` holds the intact parts of the plan's own chunks. Points that failed in them are missing too.

        Raises:
            ValueError: a part cannot be read.
        """
        complete = {name for name, part in intact.items() if not part.failed}
        other_parts = [(path, match) for path, match in find_parts(self.folder) if match[1] not in complete]
        chunks = [chunk for chunk, name in enumerate(plan.names) if name not in complete] if other_parts else []
        missing = islice((number for chunk in chunks for number in plan.numbers(chunk)), MOST_POINTS)
        number_of_key = {plan.key(number): number for number in missing}
        shared_lines, columns = dict[int, Lines](), self.head[1 + len(plan.space.axes) :]
        for path, match in other_parts if number_of_key else ():
            head, *lines = machine.csv_lines(path) if is_intact(path, match) else [[]]
            lines_of_part: dict[int, Lines] = {}
            for line in lines if set(columns) <= set(head) else []:
                row = dict(zip(head, line, strict=True))
                if row["status"] == OK and row["key"] in number_of_key:
                    number = number_of_key[row["key"]]
                    # the other sweep may number its points differently, and vary other settings
                    lines_of_part.setdefault(number, []).append(
                        [*format_settings(plan, number), *(row[name] for name in columns)]
                    )
            shared_lines |= lines_of_part
        return shared_lines


def create_folder(folder: Path) -> None:
    """Create `output_dir/sweeps/<name>/parts`.

    Raises:
        OSError: a link or a file is in the way, or a folder cannot be created.
    """
    trust.check_sweep(folder)
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    for path in (folder.parent, folder, folder / "parts"):
        machine.own_folder(path)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the sweep in `folder` until the block or the process ends, and remove temporary files of killed processes.

    Raises:
        UserError: another process holds the lock.
    """
    try:
        with machine.locked(folder / "lock"):
            for subfolder in (folder, *(path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink())):
                machine.remove_drafts(subfolder, min_age=0.0)
            yield
    except TimeoutError as error:
        raise UserError(f"{folder}: another process is running this sweep; wait for it or end it") from error


def find_parts(folder: Path) -> list[tuple[Path, re.Match[str]]]:
    paths = sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ()
    return [(path, match) for path in paths if (match := NAME.fullmatch(path.name))]


def is_intact(path: Path, match: re.Match[str]) -> bool:
    try:
        return digest_of(match[1], machine.read(path, MOST_BYTES)) == match[3]
    except OSError:
        return False


def digest_of(chunk: str, data: bytes) -> str:
    return hashlib.sha256(f"{chunk}\n".encode() + data).hexdigest()[:16]


def merge_pieces(pieces: Sequence[bytes]) -> bytes:
    """Join pieces of a chunk's lines, and sort the lines by point."""
    lines = [line for piece in pieces for line in machine.parse_csv(piece.decode("utf-8"))]
    return as_csv(sorted(lines, key=lambda line: int(line[0])))
