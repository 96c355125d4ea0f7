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
MOST_ARRAYS = 10_000


class Header(NamedTuple):
    """What a NumPy file says of its array, and where its numbers begin."""

    shape: tuple[int, ...]
    columns_first: bool
    dtype: np.dtype[Any]
    start: int


def read_header(stream: IO[bytes], size: int) -> Header:
    """Read the header of an array in a stream of so many bytes.

    Raises:
        ValueError: no NumPy file, objects, or a header that does not fit the bytes that follow.
    """
    if stream.read(2) == b"PK":
        raise ValueError("it is an archive of several arrays; call it .npz")
    stream.seek(0)
    try:
        version = numpy_format.read_magic(stream)
        shape, columns_first, dtype = READERS[version](stream)
    except Exception as error:  # a header is read as Python's own literals, which fail in a dozen ways
        raise ValueError("no NumPy file of plain numbers") from error
    if dtype.hasobject:
        raise ValueError("it holds objects, which could run code; save plain numbers, as array.astype(float)")
    if dtype.kind == "V":
        hint = "; a bfloat16 loses its type there: save it as float32, or as safetensors" if dtype.itemsize == 2 else ""
        raise ValueError(f"it holds {dtype}; expected plain numbers{hint}")
    begin, length = stream.tell(), math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or length != size - begin:
        raise ValueError(f"its header says {list(shape)} of {dtype}, {length:,} bytes, and {size - begin:,} follow")
    if length > MOST_BYTES:
        raise ValueError(f"{length:,} bytes of numbers; at most {MOST_BYTES:,} are read")
    return Header(tuple(shape), columns_first, dtype, begin)


def read_body(stream: IO[bytes], head: Header) -> Array:
    """Read the numbers that follow a header."""
    length = math.prod(head.shape) * head.dtype.itemsize
    data = stream.read(length)
    if len(data) != length:
        raise ValueError(f"it ends after {len(data):,} of {length:,} bytes of numbers")
    flat = np.frombuffer(data, head.dtype)
    return flat.reshape(head.shape, order="F" if head.columns_first else "C")


def look_at_one(path: Path, said: str) -> Held:
    """Return the one array of the file; it has no name."""
    with machine.opened(path) as file:
        head = read_header(file, size_of(file))
    return Held({"": Entry(head.shape, str(head.dtype), partial(read_one, path))})


def read_one(path: Path) -> Array:
    """Read the array of a file."""
    with machine.opened(path) as file:
        return read_body(file, read_header(file, size_of(file)))


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive; whatever the reader of ZIP stumbles over is a ValueError."""
    try:
        with machine.opened(path) as file, zipfile.ZipFile(file) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError) as error:
        raise ValueError(f"no NumPy archive that can be read: {first_line(error)}") from error


def look_into_archive(path: Path, said: str) -> Held:
    """Return the arrays of an archive, from their headers alone; texts under the name of tokens are tokens."""
    entries: dict[str, Entry] = {}
    with open_archive(path) as archive:
        members = archive.infolist()
        if len(members) > MOST_ARRAYS:
            raise ValueError(f"{len(members):,} arrays; at most {MOST_ARRAYS:,} are read")
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in entries:
                raise ValueError(f"it holds {brief(name)} twice")
            entries[name] = find_array(path, archive, member, name)
    named = next((name for name in TOKENS if name in entries and "U" in entries[name].dtype), None)
    tokens = None if named is None else tuple(str(token) for token in entries.pop(named).read().ravel())
    return Held(entries, tokens)


def find_array(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> Entry:
    """Return one array of an archive; where its header cannot be read, asking for its numbers says why."""
    if member.file_size > MOST_BYTES:
        raise ValueError(f"{brief(name)} takes {member.file_size:,} bytes; at most {MOST_BYTES:,} are read")
    with archive.open(member) as stream:
        try:
            head = read_header(stream, member.file_size)
        except ValueError as error:
            return no_array(first_line(error))
    return Entry(head.shape, str(head.dtype), partial(read_from_archive, path, member.filename))


def read_from_archive(path: Path, name: str) -> Array:
    """Read one array of an archive."""
    with open_archive(path) as archive:
        member = archive.getinfo(name)
        with archive.open(member) as stream:
            return read_body(stream, read_header(stream, member.file_size))


FORMATS = {"npy": Format(look_at_one), "npz": Format(look_into_archive)}
