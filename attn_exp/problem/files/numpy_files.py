"""NumPy files (.npy) and archives of them (.npz): each header is checked against the bytes that follow it.

`np.load` is not used: it allocates whatever memory a false header claims, and silently ignores surplus bytes. Objects
in a file, which could run code, are never loaded.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as numpy_format

from attn_exp import machine
from attn_exp.arrays import Array, Shape
from attn_exp.errors import brief, first_line
from attn_exp.problem.files import MOST_BYTES, TOKENS, Contents, Entry, size_of, unreadable_entry

READERS = {(1, 0): numpy_format.read_array_header_1_0, (2, 0): numpy_format.read_array_header_2_0}
LOOSE, TIGHTEST = 2**28, 50
"""An array of more than `LOOSE` bytes must not unpack to more than `TIGHTEST` times the size of its archive."""


def read_header(stream: IO[bytes], size: int) -> tuple[Shape, bool, np.dtype[Any]]:
    """Read the header of an array in a stream of `size` bytes: its shape, whether it is column-major, and its dtype.

    Raises:
        ValueError: the stream is not a NumPy file, holds objects, or its header does not fit the bytes that follow.
    """
    try:
        shape, columns_first, dtype = READERS[numpy_format.read_magic(stream)](stream)
    except zipfile.BadZipFile:  # raised by a member of an archive
        raise
    except Exception as error:  # headers are parsed as Python literals, which can fail in many ways
        raise ValueError("not a NumPy file of plain numbers") from error
    if dtype.hasobject or dtype.kind == "V" or not dtype.itemsize:
        raise ValueError(f"it holds {dtype}; expected plain numbers, as from astype(float); objects could run code")
    length, remaining = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if length != remaining or not all(0 <= size < 2**63 for size in shape):
        claim = f"{brief(str(list(shape)), 60)} of {dtype}, {brief(f'{length:,}', 40)} bytes"
        raise ValueError(f"its header announces {claim}, but {remaining:,} bytes follow")
    if length > MOST_BYTES:
        raise ValueError(f"{length:,} bytes of numbers; at most {MOST_BYTES:,} are read")
    return tuple(shape), columns_first, dtype


def read_array(stream: IO[bytes], size: int) -> Array:
    shape, columns_first, dtype = read_header(stream, size)
    data = bytearray(math.prod(shape) * dtype.itemsize)
    done = stream.readinto(data)  # type: ignore[attr-defined] # files and members of an archive have it
    if done < len(data):
        raise ValueError(f"it ends after {done:,} of {len(data):,} bytes of numbers")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if columns_first else "C")


def list_contents(path: Path, label: str) -> Contents:
    """List the arrays of a file from their headers; strings under a name in `TOKENS` are the token names."""
    if path.suffix.lower() == ".npz":
        return list_archive(path)
    with machine.open_regular(path) as file:
        shape, _, dtype = read_header(file, size_of(file))
    return Contents({"": Entry(shape, str(dtype), lambda index: read_npy(path)[index])})


def read_npy(path: Path) -> Array:
    """Read a .npy file; its array may be of any plain type, not only numbers.

    Raises:
        OSError: the file is missing or not regular.
        ValueError: the file is not a NumPy file, or its header is false.
    """
    with machine.open_regular(path) as file:
        return read_array(file, size_of(file))


@contextmanager
def open_archive(path: Path) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """Open an archive and yield its members by name; every error of the ZIP reader becomes a ValueError."""
    try:
        with machine.open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            if len(members) < len(archive.infolist()):
                raise ValueError("it holds two arrays with the same name")
            yield archive, members
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError) as error:
        raise ValueError(f"not a readable NumPy archive: {first_line(error)}") from error


def list_archive(path: Path) -> Contents:
    with open_archive(path) as (archive, members):
        entries = {name: make_archive_entry(path, archive, name, member) for name, member in members.items()}
    token_name = next((name for name in TOKENS if name in entries and "U" in entries[name].dtype), None)
    tokens = None if token_name is None else tuple(map(str, entries.pop(token_name).read(...).ravel()))
    return Contents(entries, tokens)


def make_archive_entry(path: Path, archive: zipfile.ZipFile, name: str, member: zipfile.ZipInfo) -> Entry:
    """Return the entry of one array of an archive; an unreadable header raises an error when the numbers are read.

    Raises:
        ValueError: the array would unpack to far more bytes than the archive has.
    """
    largest_size = min(MOST_BYTES, max(LOOSE, TIGHTEST * path.stat().st_size))
    if member.file_size > largest_size:
        raise ValueError(f"{brief(name)} takes {member.file_size:,} bytes; at most {largest_size:,} are read here")
    with archive.open(member) as stream:
        try:
            shape, _, dtype = read_header(stream, member.file_size)
        except ValueError as error:
            return unreadable_entry(first_line(error))
    return Entry(shape, str(dtype), partial(read_from_archive, path, name))


def read_from_archive(path: Path, name: str, index: Any) -> Array:
    with open_archive(path) as (archive, members), archive.open(members[name]) as stream:
        return np.asarray(read_array(stream, members[name].file_size)[index])


def load_archive(path: Path) -> dict[str, Array]:
    """Read all arrays of an uncompressed archive, as `numpy.savez` writes it.

    Raises:
        OSError: the file is missing or not regular.
        ValueError: the file is not such an archive, an array is unreadable, or the arrays together exceed the file.
    """
    arrays = {}
    with open_archive(path) as (archive, members):
        if sum(member.file_size for member in members.values()) > path.stat().st_size:  # it could unpack to any size
            raise ValueError("its arrays together are larger than the file")
        for name, member in members.items():
            with archive.open(member) as stream:
                arrays[name] = read_array(stream, member.file_size)
    return arrays
