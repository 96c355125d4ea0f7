"""Read files up to a size limit, write files and folders atomically, and lock files.

Only regular files are opened. Every failure to read one is an OSError or a ValueError with a one-line message.

Each file or folder is first written as a draft: under a hidden name beside its target. It is renamed when it is
complete. A command that fails or is interrupted removes its draft; the drafts of a killed process are removed by a
later command that writes to the same folder.
"""

from __future__ import annotations

import codecs
import csv
import errno
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from io import BufferedReader, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from attn_exp.errors import first_line

MOST_BYTES = 64 * 2**20
"""Default size limit: settings and descriptions are far smaller; arrays and tables have limits of their own."""


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading.

    Raises:
        OSError: there is no such file, or it is not a regular file.
    """
    no_wait = getattr(os, "O_NONBLOCK", 0)  # otherwise opening a FIFO would block until it has a writer
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | no_wait))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def read(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the contents of a regular file of at most `most` bytes.

    Raises:
        OSError: there is no such file, or it is not a regular file, or too large.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
        return file.read(size)


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """Read a regular UTF-8 file of at most `most` bytes.

    Raises:
        OSError: there is no such file, or it is not a regular file, or too large.
        UnicodeDecodeError: the bytes are not UTF-8.
    """
    return read(path, most).decode("utf-8")


def read_json(path: Path, most: int = MOST_BYTES) -> Any:
    """Read a regular JSON file of at most `most` bytes; see `parse_json`.

    Raises:
        OSError: there is no such file, or it is not a regular file, or too large.
        ValueError: the file is not JSON.
    """
    return parse_json(read(path, most))


def parse_json(data: bytes) -> Any:
    """Parse JSON in UTF-8, or in UTF-16 with a byte order mark.

    Raises:
        ValueError: the bytes are not valid text or not JSON, or the JSON nests too deeply.
    """
    text = decode_text(data)
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {first_line(error)}") from error


def parse_csv(text: str | TextIO, delimiter: str = ",", *, no_blanks: bool = False) -> Iterator[list[str]]:
    """Yield the cells of each line of CSV text; `no_blanks` strips spaces after a delimiter.

    Raises:
        ValueError: the text is not valid CSV.
    """
    lines = StringIO(text, newline="") if isinstance(text, str) else text
    try:
        yield from csv.reader(lines, delimiter=delimiter, skipinitialspace=no_blanks)
    except csv.Error as error:
        raise ValueError(f"it is not a table: {first_line(error)}") from error


def csv_lines(path: Path) -> Iterator[list[str]]:
    """Yield the cells of each line of a CSV file of any length, without loading it whole.

    Raises:
        OSError: there is no such file, or it is not a regular file.
        ValueError: the file is not valid CSV.
    """
    with open_regular(path) as file, TextIOWrapper(file, "utf-8", newline="") as text:
        yield from parse_csv(text)


def decode_text(data: bytes) -> str:
    """Decode bytes as UTF-8, or as UTF-16 if they begin with its byte order mark.

    Raises:
        UnicodeDecodeError: the bytes are not valid; the message says where.
    """
    is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # Excel writes UTF-16
    return data.decode("utf-16" if is_wide else "utf-8")


def own_folder(path: Path) -> Path:
    """Create a folder unless it exists, and return it; a link at that path is refused, since it may lead anywhere.

    Raises:
        OSError: the path is a link or a file, or the folder cannot be created.
    """
    path.mkdir(exist_ok=True)
    if path.is_symlink():
        raise OSError(errno.ELOOP, "is a link, and its target may belong to somebody else", str(path))
    return path


def folder(name: str | Path) -> Path:
    """Return the path of a folder that a user names; the folder need not exist.

    If the path is a link, such as `latest`, return its target, so that the result stays the same if the link is moved.
    """
    path = Path(name)
    return path.parent / os.readlink(path) if os.path.islink(path) else path


# Writing

DRAFT = re.compile(r"\.attn-exp-draft-[0-9a-f]{16}")  # the name of a draft
OLD = 24 * 3600.0  # seconds without a write after which a draft counts as abandoned


def as_bytes(content: str | bytes) -> bytes:
    """Encode a string; an unpaired surrogate, which UTF-8 cannot encode, is escaped."""
    return content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")


def write(path: Path, content: str | bytes | Iterable[bytes], *, sync: bool = False) -> None:
    """Write a file atomically, and remove old drafts in its folder.

    - `content`: a string, bytes, or chunks of bytes, which need not fit into memory together.
    - `sync`: wait until the contents are on the disk, so that even a power failure cannot leave half a file.

    If `path` is a link, the file replaces the link, and the link's target is left alone.

    Raises:
        OSError: the folder cannot be written to, or the disk is full.
    """
    remove_drafts(path.parent)
    with make_draft(path) as draft:
        with open(draft, "xb") as file:
            file.writelines([as_bytes(content)] if isinstance(content, str | bytes) else content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)


def fill(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files to a draft folder under their names, such as `page.html` or `figures/weights.svg`."""
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(as_bytes(content))


def point(link: Path, folder: Path) -> None:
    """Make `link` a symbolic link to a folder, replacing an old one; do nothing where links are not allowed."""
    with suppress(OSError, NotImplementedError), make_draft(link) as draft:
        draft.symlink_to(os.path.relpath(folder, link.parent), target_is_directory=True)
        os.replace(draft, link)


@contextmanager
def write_folder(folder: Path, *, add: bool = False) -> Iterator[Path]:
    """Yield a draft folder that becomes `folder` when the block ends; if the block fails, nothing is left.

    With `add`, `folder` may exist already. The files then move into it, and replace files and links of the same names.
    The draft is made inside `folder`, because the parent folder may be read-only or on another disk.

    Raises:
        OSError: the folder cannot be written to, or is not empty, or is a link; or the disk is full.
    """
    parent = own_folder(folder) if add and os.path.lexists(folder) else folder.parent
    parent.mkdir(parents=True, exist_ok=True)
    remove_drafts(parent)
    with make_draft(parent / "files") as draft:
        draft.mkdir()
        yield draft
        if parent != folder:
            os.replace(draft, folder)
            return
        for source in sorted(draft.rglob("*")):  # folders before their contents
            target = folder / source.relative_to(draft)
            if source.is_dir():
                own_folder(target)
            else:
                os.replace(source, target)
        shutil.rmtree(draft)


@contextmanager
def make_draft(target: Path) -> Iterator[Path]:
    """Yield the hidden name of a draft next to `target`; if the block fails, remove the draft."""
    draft = target.with_name(f".attn-exp-draft-{os.urandom(8).hex()}")
    try:
        yield draft
    except BaseException:
        remove(draft)
        raise


def remove_drafts(folder: Path, min_age: float = OLD) -> None:
    """Remove the drafts that killed processes left in a folder: those without a write for `min_age` seconds."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if DRAFT.fullmatch(entry.name) and time.time() - entry.stat(follow_symlinks=False).st_mtime >= min_age:
                remove(Path(entry.path))


def remove(draft: Path) -> None:
    """Remove a draft (a file or a folder) if it exists and can be removed, without following links."""
    shutil.rmtree(draft, ignore_errors=True)  # does nothing to a file or a link
    with suppress(OSError):
        draft.unlink()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file until the block or the process ends.

    Raises:
        TimeoutError: another process holds the lock.
        OSError: the file cannot be created, or is a link.
    """
    from filelock import FileLock  # noqa: PLC0415 - only sweeps lock anything

    with FileLock(path, timeout=0):
        yield


def is_locked(path: Path) -> bool:
    try:
        with locked(path) if path.exists() else nullcontext():
            return False
    except OSError as error:
        return isinstance(error, TimeoutError)
