"""What operating systems do differently: no other file asks on which of them it runs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""Flags of opening that not every system has; a FIFO opened without the second would wait for its writer for ever."""
AS_IT_IS = getattr(os, "O_BINARY", 0)
"""The flag that keeps Windows from changing the ends of lines."""


class HeldError(Exception):
    """A file is locked by another process, which said this of itself."""


def usable_cores() -> int:
    """Return the number of cores this process may run on, which a container or `taskset` can make few."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_memory(most: int) -> None:
    """Let this process have at most so many bytes of memory, where the system can limit it, and no core dump."""
    with suppress(ImportError, OSError, ValueError):  # a lower limit may stand already
        import resource  # noqa: PLC0415 - not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def processor_asker() -> Callable[[], int] | None:
    """Return what tells on which processor the calling thread runs; None where a thread cannot be kept off one."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    import ctypes  # noqa: PLC0415 - few need it

    asker: Callable[[], int] | None = getattr(ctypes.CDLL(None), "sched_getcpu", None)
    return asker


def keep_off(processor: int, thread: int) -> bool:
    """Let a thread, by its system's number, run on all usable processors but one; say whether that was possible."""
    with suppress(OSError):  # processors can be taken away at any time
        os.sched_setaffinity(thread, os.sched_getaffinity(0) - {processor})
        return True
    return False


def open_new(path: Path) -> int:
    """Create a file, through no link, and return its descriptor for writing.

    Raises:
        OSError: something of that name is there, or the folder cannot be written to.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | AS_IT_IS, 0o666)


def sync_file(path: Path) -> None:
    """Wait until what a file holds would survive a loss of power."""
    with open(path, "r+b") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder would survive a loss of power, where the system can do that."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def replace(source: Path, target: Path) -> None:
    """Rename a file or folder atomically; a file or a link of the new name is replaced."""
    os.replace(source, target)


def make_link(place: Path, target: str) -> None:
    """Let a new path lead to a folder: as a link, or as a text that names it where Windows allows no links."""
    try:
        place.symlink_to(target, target_is_directory=True)
    except (OSError, NotImplementedError):
        with open(open_new(place), "wb") as file:
            file.write(f"{Path(target).as_posix()}\n".encode())


@contextmanager
def locked(path: Path, about: str) -> Iterator[None]:
    """Lock a file until the block ends or the process does; `about` says who holds it, for people.

    Raises:
        HeldError: another process holds it, and said this of itself.
        OSError: the file cannot be made, or is a link.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - only sweeps lock anything

    beside = path.with_name(f".{path.name}-holder")
    try:
        with FileLock(path, timeout=0):
            beside.unlink(missing_ok=True)
            with open(open_new(beside), "wb") as file:
                file.write(about.encode())
            try:
                yield
            finally:
                beside.unlink(missing_ok=True)
    except Timeout as error:
        text = b""
        with suppress(FileNotFoundError), open(beside, "rb") as file:  # it may just be written
            text = file.read(4096)
        raise HeldError(text.decode("utf-8", "replace")) from error


def read_holder(path: Path) -> str | None:
    """Return what the process that has locked a file says of itself; None where nobody has."""
    try:
        if path.exists():
            with locked(path, ""):
                pass
    except HeldError as error:
        return str(error)
    except OSError:
        return None
    return None


def start_worker(serve: Callable[..., None], *arguments: Any) -> Any:
    """Start a worker process that calls `serve`, and return it.

    A fork starts in milliseconds; elsewhere than on Linux it is not safe. A spawned process would first run the main
    program of the user again, and so start what that starts; ours need nothing of it.
    """
    import multiprocessing  # noqa: PLC0415 - a run starts none

    can_fork = sys.platform == "linux"
    context = multiprocessing.get_context("fork" if can_fork else "spawn")
    process = context.Process(target=serve, args=arguments, daemon=True)  # type: ignore[attr-defined] # as both have it
    program = sys.modules["__main__"]
    try:
        if not can_fork:
            sys.modules["__main__"] = ModuleType("__main__")
        process.start()
    finally:
        sys.modules["__main__"] = program
    return process


def serve_parent() -> None:
    """Leave Ctrl-C to the process that started this worker, and end when that one does, however it ends."""
    import multiprocessing  # noqa: PLC0415 - only workers need these
    import threading  # noqa: PLC0415

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent: Any = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def kill_group(process: Any) -> None:
    """Kill a process and all that it started, where it leads a group of its own; on Windows the process alone."""
    with suppress(OSError):  # it has ended
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def at_fork(*, before: Callable[[], object] | None = None, after: Callable[[], object]) -> None:
    """Let functions be called before this process forks, and in each child; if nothing forks, never."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**({"before": before} if before else {}), after_in_child=after)


def describe_exit(code: int) -> str:
    """Return how a process ended: `exit code 3`, or the name of the signal that ended it."""
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
