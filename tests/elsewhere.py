"""Another operating system, as far as one can be played: what Windows lacks is hidden, what it refuses is refused.

`environment(folder)` is that of a process in which all this holds, and in those that it starts. There are no POSIX
locks, signals, users and forks; links ask for a privilege; a file that any process of the command has open is neither
replaced nor removed; names of devices and names with `:*?"<>|` open nothing; of two names that differ in capitals only
one can be there; text is of no known encoding; and the terminal has the letters of Western Europe alone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog")
CALLS = (
    "fork", "forkpty", "geteuid", "getuid", "getegid", "getgid", "getgroups", "getpgid", "getpgrp", "getsid", "killpg",
    "setsid", "mkfifo", "mknod", "nice", "pread", "preadv", "pwrite", "pwritev", "register_at_fork",
    "sched_getaffinity", "sched_setaffinity", "sched_yield", "sched_getscheduler", "statvfs", "fstatvfs",
    "sysconf", "sysconf_names", "getloadavg", "posix_spawn", "posix_spawnp", "posix_fallocate", "posix_fadvise",
    "sendfile", "chown",
    "lchown", "fchown", "fchmod", "fchdir", "chroot", "lockf", "fdatasync", "sync", "ttyname", "openpty", "tcgetpgrp",
    "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "O_SYNC", "O_DSYNC", "O_NOCTTY", "O_NDELAY", "O_TMPFILE",
)  # fmt: skip
SIGNALS = (
    "SIGKILL", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGPIPE", "SIGCHLD", "SIGSTOP", "SIGTSTP",
    "SIGCONT", "SIGWINCH", "SIGBUS", "alarm", "setitimer", "getitimer", "pause", "pthread_sigmask", "pthread_kill",
    "sigwait", "sigpending", "siginterrupt",
)  # fmt: skip
C_CALLS = ("prctl", "sched_getcpu")
DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10))}
REFUSED = set('<>:"|?*\\')


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return the environment of a process on that system; a file for it is written to a folder."""
    (folder / "sitecustomize.py").write_text(
        "import importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('elsewhere', {__file__!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "module.play()\n",
        encoding="utf-8",
    )
    root = Path(__file__).parent.parent
    paths = f"{folder}{os.pathsep}{root}"
    return os.environ | {"PYTHONPATH": paths, "PYTHONIOENCODING": "cp1252", "PYTHONWARNDEFAULTENCODING": "1"} | more


def play() -> None:
    """Make this process one of another system; what stands before it in `sys.path` has been imported by none."""
    import ctypes  # noqa: PLC0415 - only a process that plays needs these
    import signal  # noqa: PLC0415
    import warnings  # noqa: PLC0415

    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment] # so that an import fails
    for module, names in ((os, CALLS), (signal, SIGNALS)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    os.symlink = no_link
    os.rename = rename  # type: ignore[assignment] # as below

    class Library(ctypes.CDLL):
        def __getattr__(self, name: str) -> Any:
            if name in C_CALLS:
                raise AttributeError(f"function {name!r} not found")
            return super().__getattr__(name)

    ctypes.CDLL = Library  # type: ignore[misc] # as above
    warnings.filterwarnings("ignore", category=EncodingWarning)  # of libraries
    warnings.filterwarnings("error", category=EncodingWarning, module=r"attn_exp\b")
    sys.addaudithook(watch)


def no_link(*arguments: Any, **more: Any) -> None:
    raise OSError(22, "A required privilege is not held by the client")


def rename(source: Any, target: Any, **more: Any) -> None:
    """Give a file another name, which must be free."""
    if os.path.lexists(target):
        raise FileExistsError(183, "Cannot create a file when that file already exists", str(source), None, str(target))
    os.replace(source, target)


def watch(event: str, given: tuple[Any, ...]) -> None:
    """Refuse what that system refuses, of files that are somebody's, not of libraries or of this system."""
    if event == "open" and isinstance(given[0], str | os.PathLike | bytes):
        check_name(given[0], writes=bool(given[2] & (os.O_WRONLY | os.O_RDWR)))
    elif event == "os.mkdir":
        check_name(given[0], writes=True)
    elif event == "os.rename":
        check_name(given[1], writes=True)
        for place in given[:2]:
            check_closed(place)
    elif event == "os.remove":
        check_closed(given[0])


def check_name(place: Any, writes: bool) -> None:
    """Refuse names that cannot be, and one beside which there is one in other capitals."""
    path = os.path.abspath(os.fsdecode(place))
    home = os.environ.get("ELSEWHERE", os.getcwd())
    if not path.startswith(home + os.sep):
        return
    for part in path.removeprefix(home + os.sep).split(os.sep):
        stem = part.partition(".")[0].rstrip(" ").lower()
        if stem in DEVICES or REFUSED & set(part) or part != part.rstrip(". ") or any(ord(c) < 32 for c in part):
            raise OSError(22, "Invalid argument", path)
    folder, name = os.path.split(path)
    if writes and os.path.isdir(folder):
        alike = [there for there in os.listdir(folder) if there != name and there.casefold() == name.casefold()]
        if alike:
            raise AssertionError(f"{name} is {alike[0]} on this system: {folder}")


def check_closed(place: Any) -> None:
    """Refuse to rename, replace or remove a file that a process of the same user and package has open."""
    path = os.path.abspath(os.fsdecode(place))
    if os.path.islink(path) or not os.path.exists(path):
        return
    real = os.path.realpath(path)
    for process in {"self", str(os.getppid())}:
        try:
            numbers = os.listdir(f"/proc/{process}/fd")
        except OSError:
            continue
        for number in numbers:
            try:
                there = os.readlink(f"/proc/{process}/fd/{number}")
            except OSError:
                continue
            if there == real or there.startswith(real + os.sep):
                raise PermissionError(13, "The process cannot access the file: it is being used", path)
