"""NumPy files, .npy, and archives of them by name, .npz: what each header claims is held against the bytes behind it.

`np.load` stays out: it first asks for all the memory that a lying header claims, and leaves bytes over without a word.
Objects in a file, which could run code, are never loaded.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as numpy_format

from attn_exp import machine
from attn_exp.arrays import Array
from attn_exp.errors import brief, first_line
from attn_exp.problem.files.format import MOST_BYTES, TOKENS, Entry, Format, Held, no_array, size_of

READERS = {(1, 0): numpy_format.read_array_header_1_0, (2, 0): numpy_format.read_array_header_2_0}
LOOSE, TIGHTEST = 2**28, 50
"""An array of more bytes must not unpack to more than so many times what its archive takes on disk."""


class Header(NamedTuple):
    """What a NumPy file says of its array, and how many bytes of numbers follow."""

    shape: tuple[int, ...]
    columns_first: bool
    dtype: np.dtype[Any]
    length: int


def read_header(stream: IO[bytes], size: int) -> Header:
    """Read the header of an array in a stream of so many bytes.

    Raises:
        ValueError: no NumPy file, objects, or a header that does not fit the bytes that follow.
    """
    try:
        shape, columns_first, dtype = READERS[numpy_format.read_magic(stream)](stream)
    except zipfile.BadZipFile:  # of a member of an archive
        raise
    except Exception as error:  # a header is read as Python's own literals, which fail in a dozen ways
        raise ValueError("no NumPy file of plain numbers") from error
    if dtype.hasobject or dtype.kind == "V" or not dtype.itemsize:
        raise ValueError(f"it holds {dtype}; expected plain numbers, as array.astype(float); objects could run code")
    length, follow = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if length != follow or not all(0 <= size < 2**63 for size in shape):
        said = f"{brief(str(list(shape)), 60)} of {dtype}, {brief(f'{length:,}', 40)} bytes"
        raise ValueError(f"its header says {said}, and {follow:,} follow")
    if length > MOST_BYTES:
        raise ValueError(f"{length:,} bytes of numbers; at most {MOST_BYTES:,} are read")
    return Header(tuple(shape), columns_first, dtype, length)


def read_array(stream: IO[bytes], size: int) -> Array:
    """Read the array of a stream of so many bytes."""
    head = read_header(stream, size)
    data = bytearray(head.length)
    done = stream.readinto(data)  # type: ignore[attr-defined] # files and members of an archive have it
    if done < head.length:
        raise ValueError(f"it ends after {done:,} of {head.length:,} bytes of numbers")
    return np.frombuffer(data, head.dtype).reshape(head.shape, order="F" if head.columns_first else "C")


def look_at_one(path: Path, said: str) -> Held:
    """Return the one array of the file; it has no name."""
    with machine.opened(path) as file:
        head = read_header(file, size_of(file))
    return Held({"": Entry(head.shape, str(head.dtype), lambda index: read_npy(path)[index])})


def read_npy(path: Path) -> Array:
    """Return the array of a .npy file; it may hold other things than numbers, but no objects.

    Raises:
        OSError: no such file, or something else than a regular one.
        ValueError: no NumPy file, or one that lies.
    """
    with machine.opened(path) as file:
        return read_array(file, size_of(file))


@contextmanager
def open_archive(path: Path) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """Open an archive, and give its members by name; whatever the reader of ZIP stumbles over is a ValueError."""
    try:
        with machine.opened(path) as file, zipfile.ZipFile(file) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            if len(members) < len(archive.infolist()):
                raise ValueError("it holds two arrays of one name")
            yield archive, members
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError) as error:
        raise ValueError(f"no NumPy archive that can be read: {first_line(error)}") from error


def look_into_archive(path: Path, said: str) -> Held:
    """Return the arrays of an archive, from their headers alone; texts under the name of tokens are tokens."""
    with open_archive(path) as (archive, members):
        entries = {name: find_array(path, archive, name, member) for name, member in members.items()}
    named = next((name for name in TOKENS if name in entries and "U" in entries[name].dtype), None)
    tokens = None if named is None else tuple(map(str, entries.pop(named).read(...).ravel()))
    return Held(entries, tokens)


def find_array(path: Path, archive: zipfile.ZipFile, name: str, member: zipfile.ZipInfo) -> Entry:
    """Return one array of an archive; where its header cannot be read, asking for its numbers says why.

    Raises:
        ValueError: it would unpack to far more bytes than the archive has.
    """
    most = min(MOST_BYTES, max(LOOSE, TIGHTEST * path.stat().st_size))
    if member.file_size > most:
        raise ValueError(f"{brief(name)} takes {member.file_size:,} bytes; at most {most:,} are read here")
    with archive.open(member) as stream:
        try:
            head = read_header(stream, member.file_size)
        except ValueError as error:
            return no_array(first_line(error))
    return Entry(head.shape, str(head.dtype), partial(read_from_archive, path, name))


def read_from_archive(path: Path, name: str, index: Any) -> Array:
    """Read one array of an archive."""
    with open_archive(path) as (archive, members), archive.open(members[name]) as stream:
        return np.asarray(read_array(stream, members[name].file_size)[index])


def load_archive(path: Path) -> dict[str, Array]:
    """Return all arrays of an archive that is not compressed, as `numpy.savez` writes it.

    Raises:
        OSError: no such file, or something else than a regular one.
        ValueError: another archive, an array that is none, or members that are larger together than the file.
    """
    arrays: dict[str, Array] = {}
    with open_archive(path) as (archive, members):
        if sum(member.file_size for member in members.values()) > path.stat().st_size:  # it could unpack to any size
            raise ValueError("its arrays are larger together than the file")
        for name, member in members.items():
            with archive.open(member) as stream:
                arrays[name] = read_array(stream, member.file_size)
    return arrays


FORMATS = {"npy": Format(look_at_one), "npz": Format(look_into_archive)}
