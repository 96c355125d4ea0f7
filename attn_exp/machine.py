"""The machine beneath: files that appear whole or not at all, files read up to a limit, and the cores to be used."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from io import BufferedReader
from pathlib import Path

from attn_exp.errors import UserError, brief

MOST_BYTES = 64 * 2**20
"""What is read of a file by default: settings and descriptions are far smaller, arrays and tables have limits of
their own."""

NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""Flags that not every system has; a FIFO opened without the second would wait for its writer for ever."""


SPARE = re.compile(r"\..+-[0-9a-f]{16}", re.DOTALL)
"""The hidden name of a file that is being written; one that a kill left behind may be removed."""


def usable_cores() -> int:
    """Return the number of cores this process may run on, which a container or `taskset` can make few."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def write(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write a file whole or not at all; `sync` waits until it would survive a loss of power.

    Raises:
        OSError: the folder cannot be written to, or the disk is full.
    """
    write_pieces(path, (data,), sync=sync)


def write_text(path: Path, text: str, *, sync: bool = False) -> None:
    """Write a text as `write` does; half a surrogate pair, which UTF-8 cannot hold, becomes its number."""
    write(path, text.encode("utf-8", "backslashreplace"), sync=sync)


def write_together(files: Mapping[Path, bytes]) -> None:
    """Write files of one folder, each whole or not at all, and wait until all of them would survive a loss of power.

    The disk is waited for once: together, files cost hardly more than one alone. Where one cannot be written, those
    before it are.

    Raises:
        OSError: the folder cannot be written to, or the disk is full.
    """
    spares: dict[Path, Path] = {}
    try:
        try:
            for path, data in files.items():
                spares[path] = written_aside(path, (data,))
        finally:
            for spare in spares.values():
                sync_file(spare)
            for path, spare in spares.items():
                spare.replace(path)
            for folder in {path.parent for path in spares}:
                sync_folder(folder)
    except BaseException:
        for spare in spares.values():
            spare.unlink(missing_ok=True)
        raise


def write_pieces(path: Path, pieces: Iterable[bytes], *, sync: bool = False) -> None:
    """Write a file from pieces, whole or not at all, without holding all of it.

    The pieces go to a new file with a hidden name that nobody can guess, which then takes the place of `path`. A link
    at that place is replaced; what it points to is left alone.

    Raises:
        OSError: the folder cannot be written to, or the disk is full.
    """
    spare = written_aside(path, pieces)
    try:
        if sync:
            sync_file(spare)
        spare.replace(path)
    except BaseException:
        spare.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def written_aside(path: Path, pieces: Iterable[bytes]) -> Path:
    """Write pieces to a new file beside a path, and return its hidden name; nothing is left of one that failed."""
    spare = path.with_name(f".{path.name.lstrip('.')[:200]}-{secrets.token_hex(8)}")
    descriptor = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.writelines(pieces)
    except BaseException:
        spare.unlink(missing_ok=True)
        raise
    return spare


def sync_file(path: Path) -> None:
    """Wait until what a file holds would survive a loss of power."""
    descriptor = os.open(path, os.O_WRONLY | NO_FOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder would survive a loss of power, where the system can do that."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def opened(path: Path) -> BufferedReader:
    """Open a regular file for reading.

    Raises:
        OSError: no such file, or something else than a regular one.
    """
    descriptor = os.open(path, os.O_RDONLY | NO_WAIT)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return open(descriptor, "rb")


def read(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the contents of a regular file of at most so many bytes.

    Raises:
        OSError: no such file, something else than a regular file, or one that is larger.
    """
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
        return file.read(most)


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """Return a regular file of at most so many bytes as UTF-8 text.

    Raises:
        OSError: no such file, something else than a regular file, or one that is larger.
        UnicodeDecodeError: bytes that are no UTF-8.
    """
    return read(path, most).decode("utf-8")


def own_folder(path: Path) -> Path:
    """Make a folder, unless it is there, and return it; a link in its place is refused, as it may lead anywhere.

    Raises:
        OSError: a link or a file is there, or the folder cannot be made.
    """
    path.mkdir(exist_ok=True)
    if path.is_symlink():
        raise OSError(errno.ELOOP, "is a link, and what it leads to may be somebody else's", str(path))
    return path


def folder(word: str) -> Path:
    """Return a folder that a user names, if a system can hold such a name; whether it is there, each command asks."""
    try:
        os.lstat(word)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except OSError as error:
        raise UserError(f"{brief(word)}: no such folder ({error.strerror})") from error
    except ValueError as error:  # a NUL, which no name can hold
        raise UserError(f"{brief(word)}: no such folder ({error})") from error
    return Path(word)
