"""Files from others: only regular ones, opened up to a size limit, and read as text, JSON or a table; folders.

Three bytes of text, such as `[],`, can take a hundred bytes of memory. So the memory of JSON and tables is estimated
before they are parsed, and a text that needs more than `SWOLLEN` times its size limit is refused. Every violation is a
one-line ValueError.
"""

from __future__ import annotations

import codecs
import csv
import errno
import json
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from io import BufferedReader, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

from attn_exp import system
from attn_exp.errors import UserError, brief, first_line, reason

MOST_BYTES = 64 * 2**20
"""Default size limit: settings and descriptions are far smaller; arrays and tables have limits of their own."""
MOST_POINTER = 300
"""Size limit of a text file that stands in for a link."""
SWOLLEN = 8
JSON_COSTS = {"[": 96, "{": 240, ":": 150, ",": 40}
"""Bytes that an empty list, an empty object, a name with its value, and a list item take, beyond their characters."""
CELL, LINE = 58, 96
"""Bytes that a cell and a line of a table take."""


def opened(path: Path) -> BufferedReader:
    """Open a regular file for reading.

    Raises:
        OSError: no such file, or not a regular one.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | system.NO_WAIT))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def read(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the contents of a regular file of at most `most` bytes.

    Raises:
        OSError: no such file, not a regular file, or a larger one.
    """
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
        return file.read(most)


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """Return a regular file of at most `most` bytes as UTF-8 text.

    Raises:
        OSError: no such file, not a regular file, or a larger one.
        UnicodeDecodeError: the bytes are not UTF-8.
    """
    return read(path, most).decode("utf-8")


def read_json(path: Path, most: int = MOST_BYTES, *, once: bool = False) -> Any:
    """Read a regular JSON file of at most `most` bytes; see `parse_json`.

    Raises:
        OSError: no such file, not a regular file, or a larger one.
        ValueError: not JSON.
    """
    return parse_json(read(path, most), most, once=once)


def parse_json(data: bytes, most: int = MOST_BYTES, *, once: bool = False) -> Any:
    """Parse JSON; `most` scales the memory limit, `once` refuses an object with a repeated name.

    Raises:
        ValueError: not UTF-8, not JSON, nested too deeply, or too large in memory.
    """
    text = decoded(data)
    check_memory(text, sum(text.count(mark) * each for mark, each in JSON_COSTS.items()), most)
    try:
        return json.loads(text, object_pairs_hook=object_of if once else None)
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {first_line(error)}") from error


def object_of(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        ValueError: a name is repeated, so that its value is ambiguous.
    """
    if twice := [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]:
        raise ValueError(f"it names {brief(twice[0], 40)} twice")
    return dict(pairs)


def parse_csv(text: str, delimiter: str = ",", most: int = MOST_BYTES, *, no_blanks: bool = False) -> list[list[str]]:
    """Return the cells of each line of a table; `no_blanks` strips blanks after a delimiter.

    Raises:
        ValueError: not a table, or too large in memory.
    """
    check_memory(text, text.count(delimiter) * CELL + text.count("\n") * (LINE + CELL), most)
    try:
        return list(csv.reader(StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=no_blanks))
    except csv.Error as error:
        raise ValueError(f"it is not a table: {first_line(error)}") from error


def csv_lines(path: Path) -> Iterator[list[str]]:
    """Yield the cells of each line of a table file, however long it is.

    Raises:
        OSError: no such file, or not a regular file.
        ValueError: not a table.
    """
    with opened(path) as file, TextIOWrapper(file, "utf-8", newline="") as text:
        try:
            yield from csv.reader(text)
        except csv.Error as error:
            raise ValueError(f"{path.name} is not a table: {first_line(error)}") from error


def decoded(data: bytes) -> str:
    """Decode bytes as UTF-8, or as UTF-16 if they begin with its byte order mark.

    Raises:
        ValueError: the bytes are not valid; the message says where.
    """
    encoding = "utf-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8"  # as Excel writes
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not {encoding.upper()} text: {error.reason} at byte {error.start}") from error


def check_memory(text: str, needed: int, most: int) -> None:
    if (takes := sys.getsizeof(text) + needed) > SWOLLEN * most:
        allowed = SWOLLEN * most // 2**20
        raise ValueError(f"it would take {takes / 2**20:,.0f} MiB of memory; the limit is {allowed:,}")


def own_folder(path: Path) -> Path:
    """Make a folder unless it exists, and return it; a link in its place is refused, as it may lead anywhere.

    Raises:
        OSError: a link or a file is there, or the folder cannot be made.
    """
    path.mkdir(exist_ok=True)
    if path.is_symlink():
        raise OSError(errno.ELOOP, "is a link, and its target may belong to somebody else", str(path))
    return path


def folder(word: str) -> Path:
    """Return a folder that a user names; it may not exist, but the name must be valid.

    A link such as `latest` is followed here, once.
    """
    try:
        os.lstat(word)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError) as error:  # the name is too long, or contains a NUL
        raise UserError(f"{brief(word)}: no such folder ({reason(error)})") from error
    return resolved(Path(word))


def resolved(path: Path) -> Path:
    """Resolve a link once, so that moving the link later does not change the path.

    Where links are not allowed, `latest` is a text file that names a folder.
    """
    try:
        target = os.readlink(path) if path.is_symlink() else read_text(path, MOST_POINTER).strip()
        found = path.parent / target
        is_pointer = path.is_symlink() or (target and found.is_dir())
    except (OSError, ValueError):  # such as a text that is too long for a name
        return path
    return found if is_pointer else path
