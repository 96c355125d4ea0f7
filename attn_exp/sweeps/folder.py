"""The folder of a sweep: made through no link, not left behind by a sweep that never started, and held by one driver.

The system takes the lock back when its holder ends, however it ends: `attn_exp/system.py` has a way for each.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from attn_exp import machine, parsing, system
from attn_exp.errors import UserError
from attn_exp.runs import ours
from attn_exp.system import HeldError


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Make `output_dir/sweeps/<name>/parts` and let the block work there.

    Where the block fails or is asked to end before it wrote anything, what was made is taken away again.

    Raises:
        OSError: a link or a file is in the way, or a folder cannot be made.
    """
    ours.check_sweep(folder)
    missing = [path for path in (folder / "parts", folder, *folder.parents) if not path.exists()]
    try:
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        for path in (folder.parent, folder, folder / "parts"):
            machine.own_folder(path)
            system.sync_folder(path.parent)
        yield
    except BaseException:
        take_away(folder, missing)
        raise


def take_away(folder: Path, made: Sequence[Path]) -> None:
    """Remove the folders that were made for a sweep, the innermost first, as far as nothing was written there."""
    with suppress(OSError):
        if folder in made and set(os.listdir(folder)) <= {"lock", "parts"} and running_driver(folder) is None:
            with suppress(FileNotFoundError):  # asked to end before it was made
                (folder / "parts").rmdir()  # which fails where anything is in it, as it does below
            (folder / "lock").unlink(missing_ok=True)
    for path in made:
        with suppress(OSError):
            if path != folder / "parts":
                path.rmdir()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the sweep in `folder` until the block ends, or the process.

    Raises:
        UserError: another driver holds it, named by process and machine.
    """
    about = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    try:
        with system.locked(folder / "lock", json.dumps(about)):
            yield
    except HeldError as error:
        raise UserError(f"{folder}: {named(str(error))} is running this sweep; wait for it or end it") from error


def named(text: str) -> str:
    """Say in words what the holder of a lock says of itself."""
    try:
        about = parsing.parse_json(text.encode())
        return f"process {about['pid']} on {about['host']} (since {about['since']})"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "another process"


def running_driver(folder: Path) -> str | None:
    """Return who runs the sweep in `folder`; None where nobody does."""
    text = system.read_holder(folder / "lock")
    return None if text is None else named(text)
