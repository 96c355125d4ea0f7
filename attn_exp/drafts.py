"""Atomic writes: everything is written to a draft, a file or folder with a hidden name, and renamed when complete.

A draft lies in the same folder as its target, so that the rename is one step. A command that fails or is interrupted
leaves nothing behind; what a kill leaves is removed by a later command that writes there.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from attn_exp import machine, system

DRAFT = re.compile(r"\.attn-exp-draft-[0-9a-f]{16}")
OLD = 24 * 3600.0
"""Seconds without a write after which a draft is considered abandoned."""


def write(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write a file atomically; `sync` waits until it would survive a loss of power.

    Raises:
        OSError: the folder cannot be written to, or the disk is full.
    """
    write_pieces(path, (data,), sync=sync)


def write_text(path: Path, text: str, *, sync: bool = False) -> None:
    """Write a text as `write` does; an unpaired surrogate, which UTF-8 cannot encode, is escaped."""
    write(path, as_bytes(text), sync=sync)


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def fill(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files into a draft folder, each under its name, such as `page.html` or `figures/weights.svg`."""
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(as_bytes(content) if isinstance(content, str) else content)


def write_pieces(path: Path, pieces: Iterable[bytes], *, sync: bool = False, new: bool = False) -> None:
    """Write a file atomically from pieces, without holding all of it in memory; `new` refuses to replace a file.

    A link at that path is replaced, and its target is left alone. Old drafts in the folder are removed.

    Raises:
        FileExistsError: the path of a new file exists.
        OSError: the folder cannot be written to, or the disk is full.
    """
    sweep_up(path.parent)
    with undone_unless_named(path) as draft:
        with open(draft, "xb") as file:
            file.writelines(pieces)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        if new:
            check_free(path)
        system.replace(draft, path)
    if sync:
        system.sync_folder(path.parent)


def point(link: Path, folder: Path) -> None:
    """Make `link` point to a folder: a symbolic link, or a text file where links are not allowed.

    An existing link is replaced, and its target is left alone.

    Raises:
        OSError: the folder cannot be written to.
    """
    with undone_unless_named(link) as draft:
        system.make_link(draft, os.path.relpath(folder, link.parent))
        system.replace(draft, link)


@contextmanager
def new_folder(place: Path) -> Iterator[Path]:
    """Yield a draft folder that becomes `place` when the block ends; if the block fails, nothing is left.

    Raises:
        FileExistsError: something is there already.
        OSError: the folder cannot be written to, or the disk is full.
    """
    check_free(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    sweep_up(place.parent)
    with undone_unless_named(place) as draft:
        draft.mkdir()
        yield draft
        check_free(place)  # some systems let a rename replace an empty folder
        system.replace(draft, place)


@contextmanager
def more_files(folder: Path) -> Iterator[Path]:
    """Yield a draft folder whose files move into `folder` when the block ends; if the block fails, none of them do.

    They replace files of the same names, through no link; a missing folder is created from them.

    Raises:
        OSError: the folder is a link, or cannot be written to, or the disk is full.
    """
    if not os.path.lexists(folder):
        with new_folder(folder) as draft:
            yield draft
        return
    machine.own_folder(folder)
    sweep_up(folder)
    with undone_unless_named(folder / "files") as draft:
        draft.mkdir()
        yield draft
        for path in sorted(draft.rglob("*")):  # folders before their contents
            place = folder / path.relative_to(draft)
            if path.is_dir():
                machine.own_folder(place)
            else:
                system.replace(path, place)
        shutil.rmtree(draft)


@contextmanager
def undone_unless_named(place: Path) -> Iterator[Path]:
    """Yield the hidden name of a draft next to `place`; if the block fails, remove the draft."""
    draft = place.with_name(f".attn-exp-draft-{os.urandom(8).hex()}")
    try:
        yield draft
    except BaseException:
        remove(draft)
        raise


def check_free(place: Path) -> None:
    if os.path.lexists(place):
        raise FileExistsError(errno.EEXIST, "already exists", str(place))


def sweep_up(folder: Path, older: float = OLD) -> None:
    """Remove drafts in a folder that have not been written to for `older` seconds, as a kill leaves them."""
    with suppress(OSError), os.scandir(folder) as listed:
        for item in listed:
            if DRAFT.fullmatch(item.name) and time.time() - item.stat(follow_symlinks=False).st_mtime >= older:
                remove(Path(item.path))


def remove(draft: Path) -> None:
    """Remove a draft, file or folder, if it exists and can be removed; links are not followed."""
    shutil.rmtree(draft, ignore_errors=True)  # which refuses a file and a link
    with suppress(OSError):
        draft.unlink(missing_ok=True)
