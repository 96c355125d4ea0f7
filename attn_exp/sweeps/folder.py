"""The folder of a sweep: created without following links, removed if nothing was written, and locked by one driver."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from attn_exp import drafts, machine, parsing, system
from attn_exp.errors import UserError
from attn_exp.runs import ours
from attn_exp.system import HeldError


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Create `output_dir/sweeps/<name>/parts` for the block.

    If the block fails before it has written anything, the new folders are removed.

    Raises:
        OSError: a link or a file is in the way, or a folder cannot be made.
    """
    ours.check_sweep(folder)
    made = [folder / "parts", folder, *(path for path in folder.parents if not path.exists())]
    made = [] if folder.exists() else made
    try:
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        for path in (folder.parent, folder, folder / "parts"):
            machine.own_folder(path)
            system.sync_folder(path.parent)
        yield
    except BaseException:
        take_away(folder, made)
        raise


def take_away(folder: Path, made: Sequence[Path]) -> None:
    """Remove the folders that were created for a sweep, innermost first, unless something was written there."""
    if made and folder.is_dir():
        if not set(os.listdir(folder)) <= {"lock", "parts"} or running_driver(folder) is not None:
            return
        (folder / "lock").unlink(missing_ok=True)
    for path in made:
        with suppress(OSError):
            path.rmdir()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the sweep in `folder` until the block or the process ends.

    Raises:
        UserError: another driver holds it, named by process and machine.
    """
    about = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    try:
        with system.locked(folder / "lock", json.dumps(about)):
            remove_leftovers(folder)
            yield
    except HeldError as error:
        raise UserError(f"{folder}: {describe(str(error))} is running this sweep; wait for it or end it") from error


def remove_leftovers(folder: Path) -> None:
    """Remove half-written files that a kill left in a sweep that is locked by this process."""
    for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        if not place.is_symlink():
            drafts.sweep_up(place, older=0.0)


def describe(text: str) -> str:
    """Format the description of a lock's holder."""
    try:
        about = parsing.parse_json(text.encode())
        return f"process {about['pid']} on {about['host']} (since {about['since']})"
    except (ValueError, KeyError, TypeError):
        return "another process"


def running_driver(folder: Path) -> str | None:
    """Return who runs the sweep in `folder`; None if nobody does."""
    text = system.read_holder(folder / "lock")
    return None if text is None else describe(text)
