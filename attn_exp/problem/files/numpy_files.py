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
MOST_DIRECTORY, LAST_RECORDS = MOST_ARRAYS * 400, 2**17
"""Bytes of the list of an archive's members, each of 46 and its name twice; and of the end of a file in which the
records stand that say how long that list is."""

MOST_NAMES = 2**26
LOOSE, TIGHTEST = 2**28, 50
"""An array of more bytes must not unpack to more than so many times what it takes on disk."""


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
    if any(not 0 <= size < 2**63 for size in shape):
        raise ValueError(f"its header says {brief(str(list(shape)), 40)}, which no array is")
    if dtype.hasobject:
        raise ValueError("it holds objects, which could run code; save plain numbers, as array.astype(float)")
    if dtype.kind == "V" or not dtype.itemsize:
        hint = "; a bfloat16 loses its type there: save it as float32, or as safetensors" if dtype.itemsize == 2 else ""
        raise ValueError(f"it holds {dtype}; expected plain numbers{hint}")
    begin, length = stream.tell(), math.prod(shape) * dtype.itemsize
    if length != size - begin:
        said = f"{brief(str(list(shape)), 60)} of {dtype}, {brief(f'{length:,}', 40)} bytes"
        raise ValueError(f"its header says {said}, and {size - begin:,} follow")
    if length > MOST_BYTES:
        raise ValueError(f"{length:,} bytes of numbers; at most {MOST_BYTES:,} are read")
    return Header(tuple(shape), columns_first, dtype, begin)


def read_body(stream: IO[bytes], head: Header) -> Array:
    """Read the numbers that follow a header."""
    length = math.prod(head.shape) * head.dtype.itemsize
    data, done = np.empty(length, np.uint8), 0
    while done < length:
        count = stream.readinto(data[done:])  # type: ignore[attr-defined] # files and members of an archive have it
        if not count:
            raise ValueError(f"it ends after {done:,} of {length:,} bytes of numbers")
        done += count
    return data.view(head.dtype).reshape(head.shape, order="F" if head.columns_first else "C")


def look_at_one(path: Path, said: str) -> Held:
    """Return the one array of the file; it has no name."""
    with machine.opened(path) as file:
        head = read_header(file, size_of(file))
    return Held({"": Entry(head.shape, str(head.dtype), partial(read_npy, path))})


def read_npy(path: Path) -> Array:
    """Return the array of a .npy file; it may hold other things than numbers, but no objects.

    Raises:
        OSError: no such file, or something else than a regular one.
        ValueError: no NumPy file, or one that lies.
    """
    with machine.opened(path) as file:
        return read_body(file, read_header(file, size_of(file)))


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive; whatever the reader of ZIP stumbles over is a ValueError."""
    try:
        with machine.opened(path) as file:
            check_directory(file)
            with zipfile.ZipFile(file) as archive:
                yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError) as error:
        raise ValueError(f"no NumPy archive that can be read: {first_line(error)}") from error


def check_directory(file: IO[bytes]) -> None:
    """Refuse an archive of far too many members before the reader of ZIP makes an object of each.

    Where the list of members ends, a record says how long it is: at 12 of the usual one, at 40 of the one for large
    archives. Source: PKWARE, APPNOTE.TXT 6.3.10, 4.3.14 and 4.3.16.
    """
    size = size_of(file)
    file.seek(max(0, size - LAST_RECORDS))
    tail = file.read()
    file.seek(0)
    plain = tail[-22:-18] == b"PK\5\6" and tail.endswith(b"\0\0")  # no remark follows
    usual = len(tail) - 22 if plain else tail.rfind(b"PK\5\6")
    length = int.from_bytes(tail[usual + 12 : usual + 16], "little")
    if usual >= 76 and tail[usual - 20 : usual - 16] == b"PK\6\7":  # where the record for large archives stands
        large = tail[usual - 76 : usual - 20]
        length = int.from_bytes(large[40:48], "little") if large.startswith(b"PK\6\6") else size
    if usual >= 0 and length > MOST_DIRECTORY:
        raise ValueError(f"more than {MOST_ARRAYS:,} arrays, or names without end")


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
    tokens = None if named is None else texts_of(entries.pop(named), named)
    return Held(entries, tokens)


def find_array(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> Entry:
    """Return one array of an archive; where its header cannot be read, asking for its numbers says why."""
    if member.file_size > MOST_BYTES:
        raise ValueError(f"{brief(name)} takes {member.file_size:,} bytes; at most {MOST_BYTES:,} are read")
    check_packing(member, name, path.stat().st_size)
    with archive.open(member) as stream:
        try:
            head = read_header(stream, member.file_size)
        except ValueError as error:
            return no_array(first_line(error))
    return Entry(head.shape, str(head.dtype), partial(read_from_archive, path, member.filename))


def check_packing(member: zipfile.ZipInfo, name: str, size: int) -> None:
    """Refuse an array that is packed so tightly that it can only be one number over and over, without end."""
    most = max(LOOSE, TIGHTEST * min(member.compress_size, size))
    if member.compress_type != zipfile.ZIP_STORED and member.file_size > most:
        packed = f"{member.compress_size:,} bytes that unpack to {member.file_size:,}"
        raise ValueError(f"{brief(name)} is {packed}; save it with numpy.savez, which packs nothing")


def texts_of(entry: Entry, name: str) -> tuple[str, ...]:
    """Return an array of texts as the names of tokens."""
    if "U" in entry.dtype and math.prod(entry.shape) * np.dtype(entry.dtype).itemsize > MOST_NAMES:
        raise ValueError(f"{brief(name)} holds more than {MOST_NAMES:,} bytes of text")
    return tuple(str(token) for token in entry.read().ravel())


def load_stored(path: Path) -> dict[str, Array]:
    """Return all arrays of an archive that packs nothing, as `numpy.savez` writes it.

    Raises:
        OSError: no such file, or something else than a regular one.
        ValueError: another archive, an array that is none, or members that are larger together than the file.
    """
    arrays: dict[str, Array] = {}
    with open_archive(path) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("it is packed otherwise than a run packs it")  # and could unpack to any size
        if sum(member.file_size for member in members) > path.stat().st_size:
            raise ValueError("its arrays are larger together than the file")
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in arrays:
                raise ValueError(f"it holds {brief(name)} twice")
            with archive.open(member) as stream:
                arrays[name] = read_body(stream, read_header(stream, member.file_size))
    return arrays


def read_from_archive(path: Path, name: str) -> Array:
    """Read one array of an archive."""
    with open_archive(path) as archive:
        member = archive.getinfo(name)
        with archive.open(member) as stream:
            return read_body(stream, read_header(stream, member.file_size))


FORMATS = {"npy": Format(look_at_one), "npz": Format(look_into_archive)}
