"""One driver per sweep: a lock that the system takes back when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attn_exp.errors import UserError


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the sweep in `folder` until the block ends.

    It is a POSIX record lock: workers do not inherit it, a kill frees it, and it works over NFS. What the file says
    is for people; only the lock counts, so a file left behind by a kill is in nobody's way.

    Raises:
        UserError: another driver holds it, named by process and machine.
    """
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise UserError(f"{folder}: {holder(descriptor)} is running this sweep; wait for it or end it") from error
        os.ftruncate(descriptor, 0)
        told = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        os.pwrite(descriptor, json.dumps(told).encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def holder(descriptor: int) -> str:
    """Say who wrote the lock file last."""
    try:
        told = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {told['pid']} on {told['host']} (since {told['since']})"
    except (ValueError, KeyError):
        return "another process"


def running(folder: Path) -> str | None:
    """Return who runs the sweep in `folder`; None where nobody does."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return holder(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)
