"""Reading files up to a size limit, and resolving folders."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from attn_exp import system
from attn_exp.errors import UserError, brief, reason

MOST_BYTES = 64 * 2**20
"""Default size limit: settings and descriptions are far smaller; arrays and tables have limits of their own."""

MOST_POINTER = 300
"""Size limit of a text file that stands in for a link."""


def opened(path: Path) -> BufferedReader:
    """Open a regular file for reading.

    Raises:
        OSError: no such file, or not a regular one.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | system.NO_WAIT))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "no regular file", str(path))
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


def own_folder(path: Path) -> Path:
    """Make a folder unless it exists, and return it; a link in its place is refused, as it may lead anywhere.

    Raises:
        OSError: a link or a file is there, or the folder cannot be made.
    """
    path.mkdir(exist_ok=True)
    if path.is_symlink():
        raise OSError(errno.ELOOP, "is a link, and what it leads to may be somebody else's", str(path))
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
    except (OSError, ValueError):
        return path
    found = path.parent / target
    return found if path.is_symlink() or (target and found.is_dir()) else path
