"""Files and folders: files that appear whole or not at all, and files read up to a limit, on every system alike."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from io import BufferedReader
from pathlib import Path

from attn_exp import system
from attn_exp.errors import UserError, brief

MOST_BYTES = 64 * 2**20
"""What is read of a file by default: settings and descriptions are far smaller, arrays and tables have limits of
their own."""

SPARE = re.compile(r"\..+-[0-9a-f]{16}", re.DOTALL)
"""The hidden name of a file that is being written; one that a kill left behind may be removed."""


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
                system.sync_file(spare)
            for path, spare in spares.items():
                system.replace(spare, path)
            for folder in {path.parent for path in spares}:
                system.sync_folder(folder)
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
            system.sync_file(spare)
        system.replace(spare, path)
    except BaseException:
        spare.unlink(missing_ok=True)
        raise
    if sync:
        system.sync_folder(path.parent)


def written_aside(path: Path, pieces: Iterable[bytes]) -> Path:
    """Write pieces to a new file beside a path, and return its hidden name; nothing is left of one that failed."""
    spare = path.with_name(f".{path.name.lstrip('.')[:200]}-{secrets.token_hex(8)}")
    descriptor = system.open_new(spare)
    try:
        with open(descriptor, "wb") as file:
            file.writelines(pieces)
    except BaseException:
        spare.unlink(missing_ok=True)
        raise
    return spare


def opened(path: Path) -> BufferedReader:
    """Open a regular file for reading.

    Raises:
        OSError: no such file, or something else than a regular one.
    """
    descriptor = os.open(path, os.O_RDONLY | system.NO_WAIT | system.AS_IT_IS)
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
    """Return a folder that a user names, if a system can hold such a name; whether it is there, each command asks.

    Where `latest` could be no link, it is a text that names a folder, and stands for it.
    """
    try:
        os.lstat(word)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except OSError as error:
        raise UserError(f"{brief(word)}: no such folder ({error.strerror})") from error
    except ValueError as error:  # a NUL, which no name can hold
        raise UserError(f"{brief(word)}: no such folder ({error})") from error
    path = Path(word)
    return system.pointed_at(path) or path
