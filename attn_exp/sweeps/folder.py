"""The folder of a sweep: made through no link, not left behind by a sweep that never started, and held by one driver.

The system takes the lock back when its holder ends, however it ends.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attn_exp import machine
from attn_exp.errors import UserError


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Make `output_dir/sweeps/<name>/parts` and let the block work there.

    Where the block ends with a mistake of the user before it wrote anything, what was made is taken away again.

    Raises:
        OSError: a link or a file is in the way, or a folder cannot be made.
    """
    missing = [path for path in (folder / "parts", folder, *folder.parents) if not path.exists()]
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    for path in (folder.parent, folder, folder / "parts"):
        machine.own_folder(path)
        machine.sync_folder(path.parent)
    try:
        yield
    except UserError:
        with suppress(OSError):
            if folder in missing:
                (folder / "lock").unlink(missing_ok=True)
            for path in missing:
                path.rmdir()  # which fails where anything is in it
        raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the sweep in `folder` until the block ends.

    It is a POSIX record lock: workers do not inherit it, a kill frees it, and it works over NFS. What the file says
    is for people; only the lock counts, so a file left behind by a kill is in nobody's way.

    Raises:
        UserError: another driver holds it, named by process and machine.
    """
    descriptor = opened_lock(folder / "lock", os.O_CREAT)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise UserError(
                f"{folder}: {lock_holder(descriptor)} is running this sweep; wait for it or end it"
            ) from error
        os.ftruncate(descriptor, 0)
        about = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        os.pwrite(descriptor, json.dumps(about).encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def opened_lock(path: Path, further: int) -> int:
    """Open the lock file itself: no link, nothing but a regular file, and none that goes by another name too.

    Raises:
        OSError: there is none, or something else.
    """
    descriptor = os.open(path, os.O_RDWR | machine.NO_FOLLOW | machine.NO_WAIT | further, 0o644)
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
        os.close(descriptor)
        raise OSError(errno.ELOOP, "its lock is no file of its own", str(path))
    return descriptor


def lock_holder(descriptor: int) -> str:
    """Say who wrote the lock file last."""
    try:
        about = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {about['pid']} on {about['host']} (since {about['since']})"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "another process"


def running_driver(folder: Path) -> str | None:
    """Return who runs the sweep in `folder`; None where nobody does."""
    try:
        descriptor = opened_lock(folder / "lock", 0)
    except OSError:
        return None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return lock_holder(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)
