"""Differences between operating systems; no other file checks which one it runs on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""Flag of `os.open` that not every system has; opening a FIFO without it would block until it has a writer."""


class HeldError(Exception):
    """A file is locked by another process; the message is that process's description of itself."""


def usable_cores() -> int:
    """Return the number of cores this process may run on, which a container or `taskset` can limit."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_memory(most: int) -> None:
    """Limit this process's memory, where the system can do that, and disable core dumps."""
    with suppress(ImportError, OSError, ValueError):  # a lower limit may stand already
        import resource  # noqa: PLC0415 - not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def processor_asker() -> Callable[[], int] | None:
    """Return a function that gives the calling thread's processor; None if thread affinity cannot be set."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    import ctypes  # noqa: PLC0415 - few need it

    asker: Callable[[], int] | None = getattr(ctypes.CDLL(None), "sched_getcpu", None)
    return asker


def keep_off(processor: int, thread: int) -> bool:
    """Let a thread (by its system id) run on all usable processors but one; return whether that was possible."""
    with suppress(OSError):  # processors can become unavailable at any time
        os.sched_setaffinity(thread, os.sched_getaffinity(0) - {processor})
        return True
    return False


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder would survive a loss of power, if the system can do that."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def replace(source: Path, target: Path) -> None:
    """Rename a file or folder atomically, replacing a file or link of the new name."""
    os.replace(source, target)


def make_link(place: Path, target: str) -> None:
    """Make a path point to a folder: a link, or a text file that names it if the system allows no links."""
    try:
        place.symlink_to(target, target_is_directory=True)
    except (OSError, NotImplementedError):
        place.write_bytes(f"{Path(target).as_posix()}\n".encode())


@contextmanager
def locked(path: Path, about: str) -> Iterator[None]:
    """Lock a file until the block or the process ends; `about` describes the holder for people.

    Raises:
        HeldError: another process holds it; the message is its description.
        OSError: the file cannot be made, or is a link.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - only sweeps lock anything

    beside = path.with_name(f".{path.name}-holder")
    try:
        with FileLock(path, timeout=0):
            beside.unlink(missing_ok=True)
            try:
                with open(beside, "x", encoding="utf-8") as file:
                    file.write(about)
                yield
            finally:
                beside.unlink(missing_ok=True)
    except Timeout as error:
        with suppress(OSError), open(beside, encoding="utf-8", errors="replace") as file:  # it may be being written
            raise HeldError(file.read(4096)) from error
        raise HeldError from error


def read_holder(path: Path) -> str | None:
    """Return the description of the process that has locked a file; None if it is not locked."""
    try:
        with locked(path, "") if path.exists() else nullcontext():
            return None
    except HeldError as error:
        return str(error)
    except OSError:
        return None


def start_worker(serve: Callable[..., None], *arguments: Any) -> Any:
    """Start a worker process that calls `serve`, and return it; Linux forks, which is fast and not safe elsewhere."""
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    process = context.Process(target=serve, args=arguments, daemon=True)  # type: ignore[attr-defined] # as both have it
    process.start()
    return process


def serve_parent() -> None:
    """Ignore Ctrl-C in a worker, leaving it to the parent, and exit when the parent ends, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent: Any = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def kill_group(process: Any) -> None:
    with suppress(OSError):  # it has ended
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def at_fork(*, before: Callable[[], object] | None = None, after: Callable[[], object]) -> None:
    """Register callbacks for before this process forks, and for each child after it; a no-op where there is no fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**({"before": before} if before else {}), after_in_child=after)


def describe_exit(code: int) -> str:
    """Describe how a process ended: `exit code 3`, or the name of the signal that ended it."""
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
