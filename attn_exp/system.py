"""What operating systems do differently, each with another way where one has none: no other file asks.

Linux, macOS and Windows have other locks, links, signals and ways to start a process. The rest of the package calls
what stands here and need not know on which of them it runs.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

POSIX = os.name == "posix"

NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""Flags of opening that not every system has; a FIFO opened without the second would wait for its writer for ever."""

AS_IT_IS = getattr(os, "O_BINARY", 0)
"""The flag that keeps Windows from changing the ends of lines."""

PARENT_DEATH_SIGNAL, KILL = 1, 9
"""PR_SET_PDEATHSIG of prctl(2), and the number of SIGKILL, the same on Linux and macOS."""

PATIENCE = (0.01, 0.03, 0.1, 0.3)
"""Seconds between attempts to replace a file that another program holds open, as a search for viruses does."""

MOST_POINTER = 300
"""The bytes of a text file that stands where a link was not allowed are fewer."""


MOST_ABOUT = 4096
"""Bytes that are read of what the holder of a lock says of itself."""


IN_OTHER_LETTERS = "attn_exp.in_other_letters"
"""How a stream that has not all letters is told to handle the others: as `in_other_letters` does."""

OTHER_LETTERS = {
    "−": "-", "–": "-", "—": "-", "…": "...", "′": "'", "‘": "'", "’": "'", "“": "'", "”": "'", "×": "x", "·": ".",
    "±": "+-", "→": "->", "←": "<-", "≤": "<=", "≥": ">=", "≠": "!=", "∞": "inf", "√": "sqrt", "Δ": "delta ",
    "█": "#", "▒": "+", "∑": "sum", "µ": "u", "°": " deg", "ᵀ": "^T", "✗": "x",
}  # fmt: skip
"""What stands for a letter where a terminal has none such, as on Windows where a text goes to a file or a pipe."""


DEVICES = {"con", "prn", "aux", "nul", "conin$", "conout$"} | {
    f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"
}
"""Names of Windows that open a device, whatever ending they have; in capitals too."""

NOWHERE = re.compile(r'[<>:"/\\|?*\x00-\x1f]')
"""Letters that no file of Windows has in its name."""


class HeldError(Exception):
    """A file is locked by another process, which wrote this text into it."""


def in_other_letters(error: UnicodeError) -> tuple[str, int]:
    """Return what is written in place of letters that a stream does not have: others, or their numbers as in JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(OTHER_LETTERS.get(letter) or numbered(letter) for letter in letters), error.end


def numbered(letter: str) -> str:
    """Return a letter as JSON writes it in ASCII."""
    halves = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{int.from_bytes(halves[at : at + 2]):04x}" for at in range(0, len(halves), 2))


codecs.register_error(IN_OTHER_LETTERS, in_other_letters)


def usable_cores() -> int:
    """Return the number of cores this process may run on, which a container or `taskset` can make few."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_memory(most: int) -> None:
    """Let this process have at most so many bytes of memory, where the system can hold it to that, and leave no file of
    what it held where it crashes."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return
    for what, limit in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, most)):
        with suppress(OSError, ValueError):  # a lower limit may stand already
            resource.setrlimit(what, (limit, limit))


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


def trouble(name: str) -> str:
    """Say why a file or folder of this name cannot be on every system; nothing where it can.

    Folders are carried from one system to another, so a name that we give is one for all of them.
    """
    if name.partition(".")[0].rstrip(" ").casefold() in DEVICES:
        return "Windows keeps this name for a device"
    if found := NOWHERE.search(name):
        return f"Windows has no {found[0]!r} in names"
    return "Windows drops dots and spaces from the end of a name" if name != name.rstrip(". ") else ""


def as_one(name: str) -> str:
    """Return what is equal for names that are one file on some systems: in other capitals, or accents written apart."""
    import unicodedata  # noqa: PLC0415 - a run asks it not

    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


def one_with(path: Path) -> str | None:
    """Return the name of what lies beside a path, and would be one with it on another system; None for most."""
    name = as_one(path.name)
    with suppress(OSError):
        return next((there for there in os.listdir(path.parent) if there != path.name and as_one(there) == name), None)
    return None


def open_new(path: Path) -> int:
    """Make a file that is not there yet, through no link, and return its descriptor for writing.

    Raises:
        OSError: something of that name is there, or the folder cannot be written to.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | AS_IT_IS, 0o666)


def sync_file(path: Path) -> None:
    """Wait until what a file holds would survive a loss of power."""
    descriptor = os.open(path, os.O_WRONLY | NO_FOLLOW | AS_IT_IS)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder would survive a loss of power, where the system can do that."""
    if not POSIX:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(source: Path, target: Path) -> None:
    """Give a file or folder the name of another, which it replaces if it is a file or a link.

    Windows refuses that while another program has one of them open, and where the name is that of a link to a folder:
    the first is tried again for half a second, the second is removed before.

    Raises:
        OSError: it cannot be done.
    """
    for seconds in PATIENCE:
        try:
            os.replace(source, target)
        except PermissionError:
            if POSIX:
                raise
            if target.is_symlink():
                target.unlink()
            time.sleep(seconds)
        else:
            return
    os.replace(source, target)


def lead(place: Path, target: str) -> None:
    """Let a new path lead to a folder, named from where the path is: as a link, or as a text file.

    Windows allows links to nobody without a privilege.

    Raises:
        OSError: the folder cannot be written to.
    """
    try:
        place.symlink_to(target, target_is_directory=True)
    except (OSError, NotImplementedError, AttributeError):
        with open(open_new(place), "wb") as file:
            file.write(f"{Path(target).as_posix()}\n".encode())


def pointed_at(path: Path) -> Path | None:
    """Return the folder that a text file written by `lead` leads to; None where it is no such file."""
    try:
        about = os.lstat(path)
        if not stat.S_ISREG(about.st_mode) or not 0 < about.st_size < MOST_POINTER:
            return None
        with open(os.open(path, os.O_RDONLY | NO_FOLLOW | NO_WAIT | AS_IT_IS), "rb") as file:
            line = file.read(MOST_POINTER).decode("utf-8")
    except (OSError, ValueError):
        return None
    parts = line.removesuffix("\n").split("/")
    if len(parts) != 2 or any(part in ("", ".", "..") or not part.isprintable() for part in parts):
        return None
    folder = path.parent.joinpath(*parts)
    return folder if folder.is_dir() else None


@contextmanager
def locked(path: Path, about: str) -> Iterator[None]:
    """Hold a file until the block ends or the process does, however it ends; meanwhile `about` says who holds it.

    Where POSIX record locks are there, one of them is held: processes that this one forks do not inherit it, and it
    works over NFS. Elsewhere SQLite holds the file, which has a way for each system. What is said is for people; only
    the lock counts, so what a kill left behind is in nobody's way.

    Raises:
        HeldError: another process holds it, and said this of itself.
        OSError: the file cannot be made, or is no file of its own.
    """
    with held(path, os.O_CREAT) as say:
        say(about)
        try:
            yield
        finally:
            say("")


def holder(path: Path) -> str | None:
    """Return what the process that holds a file says of itself; None where nobody holds it."""
    try:
        with held(path, 0):
            return None
    except HeldError as error:
        return str(error)
    except OSError:
        return None


@contextmanager
def held(path: Path, further: int) -> Iterator[Callable[[str], None]]:
    """Hold a file in the way that this system has, and yield what writes who holds it."""
    try:
        import fcntl  # noqa: PLC0415 - Windows has none
    except ImportError:
        with held_by_sqlite(path, further) as say:
            yield say
        return
    while True:
        descriptor = open_lock(path, further)
        try:
            with open(descriptor, "r+b", buffering=0, closefd=False) as file:
                try:
                    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except (BlockingIOError, PermissionError) as error:
                    raise HeldError(file.read(MOST_ABOUT).decode("utf-8", "replace")) from error
                if not same_file(descriptor, path):  # whoever held it before has removed it meanwhile
                    continue

                def say(text: str, file: FileIO = file) -> None:
                    file.seek(0)
                    file.truncate()
                    file.write(text.encode())

                yield say
                return
        finally:
            os.close(descriptor)  # which lets go of it


@contextmanager
def held_by_sqlite(path: Path, further: int) -> Iterator[Callable[[str], None]]:
    """Hold a file as an empty database, which SQLite locks on every system, and never writes to."""
    import sqlite3  # noqa: PLC0415 - for systems without record locks

    beside = path.with_name(f".{path.name}-holder")
    descriptor = open_lock(path, further)
    try:
        if os.fstat(descriptor).st_size:  # what a holder with record locks said of itself
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=OFF")  # else a second file lies beside it
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        connection.close()
        about = beside.read_bytes()[:MOST_ABOUT] if beside.is_file() else b""
        raise HeldError(about.decode("utf-8", "replace")) from error

    def say(text: str) -> None:
        beside.unlink(missing_ok=True)
        if text:
            with open(open_new(beside), "wb") as file:
                file.write(text.encode())

    try:
        yield say
    finally:
        connection.close()


def open_lock(path: Path, further: int) -> int:
    """Open the file of a lock itself: no link, nothing but a regular file, and none that goes by another name too.

    Raises:
        OSError: there is none, or something else.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, "its lock is a link", str(path))
    descriptor = os.open(path, os.O_RDWR | NO_FOLLOW | NO_WAIT | AS_IT_IS | further, 0o644)
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
        os.close(descriptor)
        raise OSError(errno.ELOOP, "its lock is no file of its own", str(path))
    return descriptor


def same_file(descriptor: int, path: Path) -> bool:
    """Say whether a path still names the file that is open."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def processes() -> Any:
    """Return the context in which worker processes are started.

    A fork inherits all and starts in milliseconds; elsewhere than on Linux it is not safe, and some have none.
    """
    import multiprocessing  # noqa: PLC0415 - a run starts none

    return multiprocessing.get_context("fork" if can_fork() else "spawn")


def can_fork() -> bool:
    """Say whether a process is started by a fork."""
    return sys.platform == "linux" and hasattr(os, "fork")


def start(process: Any) -> None:
    """Start a process of `processes()`.

    Where it inherits nothing it would first run the program of the user again, to know what that holds, and so start
    what that starts. Ours need none of it.
    """
    if can_fork():
        process.start()
        return
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        process.start()
    finally:
        sys.modules["__main__"] = program


def serve_parent() -> None:
    """Let this process, a worker of `processes()`, leave Ctrl-C to the one that started it, and end when that ends.

    A thread waits for the end of a pipe that is open as long as the parent lives, however that ends; Linux sends a
    signal too, which also ends a worker that lets no thread of its own run.
    """
    import multiprocessing  # noqa: PLC0415 - only workers need these
    import signal  # noqa: PLC0415
    import threading  # noqa: PLC0415

    for number in ending_signals():
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415

        with suppress(AttributeError):
            ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, KILL)
    threading.Thread(target=end_after, args=(parent,), daemon=True).start()


def end_after(parent: Any) -> NoReturn:
    """Wait until another process ends, and end this one."""
    parent.join()
    os._exit(1)


def aside(stream: int) -> int:
    """Return a copy of a stream that code of others does not hit by chance: `open` takes a small number for a file."""
    try:
        import fcntl  # noqa: PLC0415 - Windows has none
    except ImportError:
        return os.dup(stream)
    for number in ASIDE:
        with suppress(OSError):
            return fcntl.fcntl(stream, fcntl.F_DUPFD_CLOEXEC, number)
    return os.dup(stream)


ASIDE = (1000, 200)
"""Numbers that a check hardly gives as a size: just below how many files may be open on Linux, and on a Mac."""


def end_at_once(number: int, *, group: bool = False) -> None:
    """End a process by its number without asking it, or with all that it started, where it leads a group of its own.

    Windows has no groups that end together: there the process alone ends.
    """
    with suppress(OSError):  # it has ended
        if group and hasattr(os, "killpg"):
            os.killpg(number, KILL)
        else:
            os.kill(number, KILL)  # Windows ends it whatever the number of the signal


def at_fork(
    *, before: Callable[[], object] | None = None, after: Callable[[], object], here: Callable[[], object] | None = None
) -> None:
    """Let functions be called before this process forks, in each child, and here after it; if nothing forks, never."""
    if hasattr(os, "register_at_fork"):
        if before is not None:
            os.register_at_fork(before=before)
        if here is not None:
            os.register_at_fork(after_in_parent=here)
        os.register_at_fork(after_in_child=after)


def ending_signals() -> tuple[int, ...]:
    """Return the signals that ask a process to end: Ctrl-C, a system's, a closed terminal's, and one of Windows."""
    import signal  # noqa: PLC0415 - where it is known already

    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


def send_to_main_thread(number: int) -> None:
    """Send this process a signal so that its main thread takes it at once, also where that waits for the system."""
    import signal  # noqa: PLC0415 - where it is known already
    import threading  # noqa: PLC0415 - the same

    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, number)
    else:  # Windows: it is taken once the main thread runs again
        signal.raise_signal(number)


def is_running(number: int) -> bool:
    """Say whether there is a process of this number; where that cannot be known, that there is one."""
    if os.name != "posix":
        import ctypes  # noqa: PLC0415 - Windows alone asks it so: there, a signal to a process ends it

        synchronize, over, refused = 0x00100000, 0, 5
        kernel = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore] # on Windows alone
        handle = kernel.OpenProcess(synchronize, False, number)
        if not handle:
            return bool(kernel.GetLastError() == refused)
        ended = bool(kernel.WaitForSingleObject(handle, 0) == over)
        kernel.CloseHandle(handle)
        return not ended
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def ending(code: int | None) -> str:
    """Say how a process ended."""
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    import signal  # noqa: PLC0415 - few end so

    names = {number.value: number.name for number in signal.Signals}
    return f"was ended by {names.get(-code, f'signal {-code}')}"
