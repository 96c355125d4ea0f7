"""What is written gets its name when it is whole: until then it is a draft, a file or a folder with a hidden name.

A draft lies beside the place that it is for, so that naming it is one step, and its name says which process writes it.
Nothing is left of a command that fails or is asked to end; what a kill leaves, the next command that writes there
removes.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from attn_exp import machine, system
from attn_exp.stopping import held

DRAFT = re.compile(r"\..+-attn-exp-([0-9a-f]{8})([0-9a-f]{8})[0-9a-f]{8}", re.DOTALL)
"""The name of a draft: where its process runs, the number of that process, and what nobody can guess."""

LONGEST = 150
"""So many bytes of a name are part of its draft's, which must be no longer than a system takes."""
OLD = 24 * 3600.0
"""Seconds after which a draft of a process that cannot be asked for is nobody's: another machine, or before a start."""


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

    A link at that place is replaced; what it points to is left alone. Drafts that a kill left beside it are removed.

    Raises:
        FileExistsError: something is at the place of a new file.
        OSError: the folder cannot be written to, or the disk is full.
    """
    sweep_up(path.parent)
    with undone_unless_named(path) as draft:
        write_draft(draft, pieces)
        if sync:
            system.sync_file(draft)
        with held():
            if new:
                check_free(path)
            system.replace(draft, path)
    if sync:
        system.sync_folder(path.parent)


def write_together(files: Mapping[Path, bytes]) -> None:
    """Write files of one folder, each whole or not at all, and wait until all of them would survive a loss of power.

    The disk is waited for once: together, files cost hardly more than one alone. Where one cannot be written, those
    before it are.

    Raises:
        OSError: the folder cannot be written to, or the disk is full.
    """
    drafts: dict[Path, Path] = {}
    try:
        try:
            for path, data in files.items():
                drafts[path] = name_of_draft(path)
                write_draft(drafts[path], (data,))
        except BaseException:
            drafts.popitem()[1].unlink(missing_ok=True)
            raise
        finally:
            for draft in drafts.values():
                system.sync_file(draft)
            for path, draft in drafts.items():
                system.replace(draft, path)
            for folder in {path.parent for path in drafts}:
                system.sync_folder(folder)
    except BaseException:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
        raise


def point(link: Path, folder: Path) -> None:
    """Let `link` lead to a folder: as a link, or as a text file where links are not allowed.

    What is at that place is replaced; what it leads to is left alone.

    Raises:
        OSError: the folder cannot be written to.
    """
    with undone_unless_named(link) as draft:
        system.lead(draft, os.path.relpath(folder, link.parent))
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
        with held():
            check_free(place)  # a system may let a folder take the place of an empty one
            system.replace(draft, place)


@contextmanager
def more_files(folder: Path) -> Iterator[Path]:
    """Give a folder to write in, whose files take their places in `folder` when the block ends, all or none.

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
        with held():
            move_files(draft, folder)
            draft.rmdir()


def move_files(source: Path, target: Path) -> None:
    """Move every file below `source` to its place below `target`, once it is known that each can have it."""
    places = {path: target / path.relative_to(source) for path in sorted(source.rglob("*"))}
    for path, place in places.items():
        if path.is_dir():
            machine.own_folder(place)
        elif place.is_dir() and not place.is_symlink():
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(place))
    for path, place in places.items():
        if not path.is_dir():
            system.replace(path, place)
    for path in reversed(places):
        if path.is_dir():
            path.rmdir()


@contextmanager
def parents_made(place: Path) -> Iterator[None]:
    """Make the folders above a place; where the block fails, those that it made and that are empty are taken away."""
    missing = [folder for folder in place.parents if not folder.exists()]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        sweep_up(place.parent)
        yield
    except BaseException:
        with held(), suppress(OSError):
            for folder in missing:
                folder.rmdir()  # which fails where anything is in it
        raise


@contextmanager
def undone_unless_named(place: Path) -> Iterator[Path]:
    """Give the name of a draft for a place; what still has it where the block fails is removed."""
    draft = name_of_draft(place)
    try:
        yield draft
    except BaseException:
        with held():
            remove(draft)
        raise


def name_of_draft(place: Path) -> Path:
    """Return the hidden name, beside a place, of what is being written for it."""
    name = os.fsencode(place.name.lstrip("."))[:LONGEST].decode("utf-8", "ignore")
    return place.with_name(f".{name or 'draft'}-attn-exp-{here()}{os.getpid():08x}{os.urandom(4).hex()}")


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


def sweep_up(folder: Path) -> None:
    """Remove the drafts that killed commands have left in a folder; never one of a command that still runs."""
    with suppress(OSError):
        with os.scandir(folder) as listed:
            left = [Path(item.path) for item in listed if item.name.startswith(".") and is_left(item)]
        for path in left:
            remove(path)


def is_left(item: os.DirEntry[str]) -> bool:
    """Say whether an entry of a folder is a draft whose process has ended."""
    match = DRAFT.fullmatch(item.name)
    if not match:
        return False
    if match[1] == here():
        return not system.is_running(int(match[2], 16))
    try:
        return time.time() - item.stat(follow_symlinks=False).st_mtime > OLD
    except OSError:
        return False


def remove(draft: Path) -> None:
    """Remove a draft, file or folder, if it is there and can be removed; links are not followed."""
    with suppress(OSError):
        if draft.is_dir() and not draft.is_symlink():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.unlink(missing_ok=True)


@cache
def here() -> str:
    """Return what tells this machine, since its start, and where it numbers processes apart, from others.

    It is asked once: it never changes for a process, and files of two such places may lie in one folder.
    """
    texts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):  # where there are such files
        with suppress(OSError):
            texts.append(os.readlink(path) if os.path.islink(path) else Path(path).read_text(encoding="ascii"))
    return f"{zlib.crc32(' '.join(texts).encode()):08x}"
