"""What is written gets its name when it is whole: until then it is a draft, a file or a folder with a hidden name.

A draft lies beside the place that it is for, so that naming it is one step. Nothing is left of a command that fails or
is asked to end; what a kill leaves is removed by a command that writes there later.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attn_exp import machine, system

DRAFT = re.compile(r"\..+-attn-exp-draft-[0-9a-f]{16}", re.DOTALL)
LONGEST = 150
"""So many bytes of a name are part of its draft's, which must be no longer than a system takes."""
OLD = 24 * 3600.0
"""Seconds after which a draft that nobody has written to is nobody's."""


def write(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write a file whole or not at all; `sync` waits until it would survive a loss of power.

    Raises:
        OSError: the folder cannot be written to, or the disk is full.
    """
    write_pieces(path, (data,), sync=sync)


def write_text(path: Path, text: str, *, sync: bool = False) -> None:
    """Write a text as `write` does; half a surrogate pair, which UTF-8 cannot hold, becomes its number."""
    write(path, as_bytes(text), sync=sync)


def as_bytes(text: str) -> bytes:
    """Return a text as UTF-8, half a surrogate pair as its number."""
    return text.encode("utf-8", "backslashreplace")


def write_pieces(path: Path, pieces: Iterable[bytes], *, sync: bool = False, new: bool = False) -> None:
    """Write a file from pieces, whole or not at all, without holding all of it; `new` replaces none.

    A link at that place is replaced; what it points to is left alone. Old drafts beside it are removed.

    Raises:
        FileExistsError: something is at the place of a new file.
        OSError: the folder cannot be written to, or the disk is full.
    """
    sweep_up(path.parent)
    with undone_unless_named(path) as draft:
        write_draft(draft, pieces)
        if sync:
            system.sync_file(draft)
        if new:
            check_free(path)
        system.replace(draft, path)
    if sync:
        system.sync_folder(path.parent)


def point(link: Path, folder: Path) -> None:
    """Let `link` lead to a folder: as a link, or as a text file where links are not allowed.

    What is at that place is replaced; what it leads to is left alone.

    Raises:
        OSError: the folder cannot be written to.
    """
    with undone_unless_named(link) as draft:
        system.make_link(draft, os.path.relpath(folder, link.parent))
        system.replace(draft, link)


@contextmanager
def new_folder(place: Path) -> Iterator[Path]:
    """Give a folder to write in, which becomes `place` when the block ends; where the block fails, nothing is left.

    Raises:
        FileExistsError: something is there already.
        OSError: the folder cannot be written to, or the disk is full.
    """
    check_free(place)
    with parents_made(place), undone_unless_named(place) as draft:
        draft.mkdir()
        yield draft
        check_free(place)  # a system may let a folder take the place of an empty one
        system.replace(draft, place)


@contextmanager
def more_files(folder: Path) -> Iterator[Path]:
    """Give a folder to write in, whose files take their places in `folder` when the block ends, none where it fails.

    They replace those of the same names, through no link, and a folder that is not there is made of them.

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
        for path in sorted(draft.rglob("*")):  # folders before what is in them
            place = folder / path.relative_to(draft)
            if path.is_dir():
                machine.own_folder(place)
            else:
                system.replace(path, place)
        shutil.rmtree(draft)


@contextmanager
def parents_made(place: Path) -> Iterator[None]:
    """Make the folders above a place; where the block fails, those that it made and that are empty are taken away."""
    missing = [folder for folder in place.parents if not folder.exists()]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        sweep_up(place.parent)
        yield
    except BaseException:
        with suppress(OSError):
            for folder in missing:
                folder.rmdir()  # which fails where anything is in it
        raise


@contextmanager
def undone_unless_named(place: Path) -> Iterator[Path]:
    """Give the hidden name of a draft beside a place; what still has it where the block fails is removed."""
    name = os.fsencode(place.name.lstrip("."))[:LONGEST].decode("utf-8", "ignore") or "draft"
    draft = place.with_name(f".{name}-attn-exp-draft-{os.urandom(8).hex()}")
    try:
        yield draft
    except BaseException:
        remove(draft)
        raise


def write_draft(draft: Path, pieces: Iterable[bytes]) -> None:
    """Write pieces to a new file."""
    with open(system.open_new(draft), "wb") as file:
        file.writelines(pieces)


def check_free(place: Path) -> None:
    """Refuse a place where something is.

    Raises:
        FileExistsError: something is there.
    """
    if os.path.lexists(place):
        raise FileExistsError(errno.EEXIST, "is there already", str(place))


def sweep_up(folder: Path, older: float = OLD) -> None:
    """Remove the drafts in a folder that nobody has written to for so many seconds, as a kill leaves them."""
    with suppress(OSError), os.scandir(folder) as listed:
        for item in listed:
            if DRAFT.fullmatch(item.name) and time.time() - item.stat(follow_symlinks=False).st_mtime >= older:
                remove(Path(item.path))


def remove(draft: Path) -> None:
    """Remove a draft, file or folder, if it is there and can be removed; links are not followed."""
    if draft.is_dir() and not draft.is_symlink():
        shutil.rmtree(draft, ignore_errors=True)
    else:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
