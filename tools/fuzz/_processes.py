"""A command in a fork of this process, which has its libraries loaded: how it ends, what it printed, what lives on."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import webbrowser
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

import attn_exp
from attn_exp import cli
from attn_exp.config import compose
from attn_exp.diagnosis.classroom import grading  # noqa: F401 - what is loaded before a fork is loaded once
from attn_exp.errors import printable
from attn_exp.report import documents, pages, versus  # noqa: F401
from attn_exp.report.charts import matplotlib_figure  # noqa: F401
from attn_exp.runs import (  # noqa: F401
    execution,
    grades,
    sheets,
)
from attn_exp.sweeps import stored, sweep, swept  # noqa: F401
from attn_exp.sweeps.engines import engine  # noqa: F401
from tools.fuzz._load import others

SECONDS = 10
"""Seconds after which a command hangs."""
AFTER = 2
"""Seconds in which what a command started must have ended after it."""
BROKEN = 99
"""The exit code of a fork that could not do what it is for: nothing may be concluded from it."""
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


@cache
def warm() -> None:
    """Let Hydra find its files and learn its grammar, once for all forks."""
    compose.compose_config(
        ["embeddings=random", "mask=[causal,window]", "++mask.window.left=2", "variant=[matrix]"], ()
    )


def kept_folder(prefix: str) -> Path:
    """Return a new folder, which goes when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def done_once(folder: Path, words: Sequence[str]) -> None:
    """Do in a folder what attempts start from.

    Raises:
        RuntimeError: the command did not end well.
    """
    code, text = run(folder, words)
    if code != 0:
        raise RuntimeError(f"{' '.join(words)} ends with {code}: {text[-300:]}")


def run(folder: Path, words: Sequence[str], before: Callable[[], object] = int) -> tuple[int | None, str]:
    """Obey a command in a folder; return its exit code, None where it hangs, and what it printed.

    `before` is called in the fork, for limits of its own. What lives on is ended, and counts as a hang.

    Raises:
        RuntimeError: the fork did not come to the command, or fell after it.
    """
    command = Command(folder, words, before=before)
    code = command.wait(SECONDS)
    left = command.left_behind() if code is not None else []
    command.end()
    return (None if left else code), command.text()


class Command:
    """A command in a session of its own, in a fork of this process, and what it has printed."""

    def __init__(self, folder: Path, words: Sequence[str], *, before: Callable[[], object] = int) -> None:
        warm()
        reader, printed = os.pipe()  # a file would have a limit, and fill a disk
        self.reader: int | None = reader
        self.printed = bytearray()
        self.code: int | None = None
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self.child = os.fork()
        if not self.child:
            be_command(folder, words, printed, before)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.close(printed)
        os.set_blocking(reader, False)

    def wait(self, seconds: float) -> int | None:
        """Return how it ends; None where it does not in so many seconds, or longer where others keep us busy.

        Raises:
            RuntimeError: the fork did not come to the command, or fell after it.
        """
        start, load = time.monotonic(), others()
        while self.code is None:
            number, status = os.waitpid(self.child, os.WNOHANG)
            self.listen()
            if number:
                self.code = os.waitstatus_to_exitcode(status)
            passed = time.monotonic() - start
            if self.code is None and passed > seconds and passed > seconds * max(load, others()):
                return None
            time.sleep(0.003 if not number else 0)
        if self.code == BROKEN:
            raise RuntimeError(f"the field itself fell: {self.text()[-300:]}")
        return self.code

    def listen(self) -> None:
        """Take what was printed, so that nobody waits for us."""
        with contextlib.suppress(BlockingIOError):
            while self.reader is not None and (data := os.read(self.reader, 1 << 16)):
                self.printed += data

    def text(self) -> str:
        """Return what was printed up to now."""
        self.listen()
        return self.printed.decode("utf-8", "replace")

    def left_behind(self) -> list[int]:
        """Return the processes that live on after the first of them has ended."""
        end = time.monotonic() + AFTER * others()
        while (left := living(self.child)) and time.monotonic() < end:
            time.sleep(0.01)
        return left

    def end(self) -> None:
        if self.code is None:
            os.kill(self.child, signal.SIGKILL)
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])
        for number in living(self.child):
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
        self.listen()
        if self.reader is not None:
            os.close(self.reader)
        self.reader = None


def be_command(folder: Path, words: Sequence[str], printed: int, before: Callable[[], object]) -> NoReturn:
    """Obey a command, in a process that has just been forked, and end."""
    code = BROKEN
    try:
        os.setsid()
        signal.alarm(0)
        for number in STOPPING:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.chdir(folder)
        for stream, opened in enumerate((os.open(os.devnull, os.O_RDONLY), printed, printed)):
            os.dup2(opened, stream)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 - to the end
        before()
        code = obeyed(words)
        sys.stdout.flush()
        sys.stderr.flush()
    except KeyboardInterrupt:  # before it had come to the command
        code = 128 + signal.SIGINT
    except BaseException:
        code = BROKEN
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        os._exit(code)


def obeyed(words: Sequence[str]) -> int:
    """Obey a command in this process as that of a user would, and return its exit code."""
    sys.argv = ["attn-exp", *words]
    webbrowser.open = lambda *given, **more: False
    try:
        (loaded if words[0] == LOAD else cli.main)()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


LOAD = "load"
"""A word that is no command: what lies there is loaded from Python."""


def loaded() -> None:
    try:
        found = attn_exp.load(sys.argv[2])
        print(repr(found), len(found.table))
    except attn_exp.UserError as error:
        print(f"attn_exp: error: {printable(str(error))}", file=sys.stderr)
        sys.exit(2)


def living(session: int) -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(path.name))
    return found
