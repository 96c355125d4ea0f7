"""NumPy archives: arrays by name, packed or not. What one claims is held against what it holds, array by array."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from attn_exp import machine
from attn_exp.arrays import Array
from attn_exp.errors import brief, first_line
from attn_exp.problem.files import npy
from attn_exp.problem.files.format import MOST_BYTES, Entry, Format, Held

MOST_ARRAYS = 10_000
TOKENS = ("tokens", "words", "names", "labels")
"""Names under which the tokens of an archive lie."""


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive; whatever the reader of ZIP stumbles over is a ValueError."""
    try:
        with machine.opened(path) as file, zipfile.ZipFile(file) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError) as error:
        raise ValueError(f"no NumPy archive that can be read: {first_line(error)}") from error


def look(path: Path, said: str) -> Held:
    """Return the arrays of an archive, from their headers alone; texts under the name of tokens are tokens."""
    entries: dict[str, Entry] = {}
    with opened(path) as archive:
        members = archive.infolist()
        if len(members) > MOST_ARRAYS:
            raise ValueError(f"{len(members):,} arrays; at most {MOST_ARRAYS:,} are read")
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in entries:
                raise ValueError(f"it holds {brief(name)} twice")
            entries[name] = entry(path, archive, member, name)
    named = next((name for name in TOKENS if name in entries and "U" in entries[name].dtype), None)
    tokens = None if named is None else tuple(str(token) for token in entries.pop(named).read().ravel())
    return Held(entries, tokens)


def entry(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> Entry:
    """Return one array of an archive; where its header cannot be read, asking for its numbers says why."""
    if member.file_size > MOST_BYTES:
        raise ValueError(f"{brief(name)} takes {member.file_size:,} bytes; at most {MOST_BYTES:,} are read")
    with archive.open(member) as stream:
        try:
            head = npy.header(stream, member.file_size)
        except ValueError as error:
            return Entry((), "what is no array", partial(refuse, first_line(error)))
    return Entry(head.shape, str(head.dtype), partial(read, path, member.filename))


def refuse(reason: str) -> Array:
    """Say why an array cannot be read."""
    raise ValueError(reason)


def read(path: Path, name: str) -> Array:
    """Read one array of an archive."""
    with opened(path) as archive:
        member = archive.getinfo(name)
        with archive.open(member) as stream:
            return npy.body(stream, npy.header(stream, member.file_size))


FORMAT = Format(look)
