"""A subprocess for code that may exit, hang or crash: user code, and libraries that abort.

`Child` starts one and calls a function of this package in it, exchanging JSON lines; it ends with its parent process.
What the function prints goes to stderr.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any, NoReturn

from attn_exp import system
from attn_exp.errors import FaultError, UserError, count_of, fault_line, first_line, out_of_memory

Tell = Callable[[Any], None]
"""Callback through which a function in the subprocess reports progress, and the parent receives it."""

BEGIN = "import json,sys;target,*rest=sys.argv[1:];sys.path[:],sys.argv[:]=map(json.loads,rest);"
BEGIN += "from attn_exp.child import serve;serve(target)"
"""Code that the subprocess starts with: it gets the parent's `sys.path`, without the working folder in front."""
LOOK = 0.2
"""Seconds between two checks whether a silent subprocess has exited."""
LAST_WORDS = 1.0
"""Seconds a subprocess has to exit by itself (closing files, running hooks) once there are no more requests."""
ORPHANED = 5.0
"""Seconds after its timeout at which an orphaned subprocess exits by itself."""
ASIDE = 200
"""File descriptor of the request pipe, which user code hardly opens by mistake; replies use the next one."""


class NoAnswerError(Exception):
    """A subprocess gave no answer.

    `how` describes the end, such as `exit code 3`; `late` is true if it was killed after a timeout.
    """

    def __init__(self, how: str, late: bool = False) -> None:
        super().__init__(how)
        self.how, self.late = how, late


class Child:
    """A subprocess that serves one function of this package: `with Child("attn_exp.room.file:function") as child`.

    It starts at once, so that its start-up and imports overlap with other work, and is closed at the end of the
    context. The function is called as `function(argument, tell)`; its argument, its answer and the messages it sends
    with `tell` must be JSON values. `quiet` drops its output. `variables` are set in its environment unless they are
    set already.

    Raises:
        OSError: no process can be started.
    """

    def __init__(self, target: str, *, quiet: bool = False, variables: Mapping[str, str] | None = None) -> None:
        told = (json.dumps([str(path) for path in sys.path]), json.dumps(sys.argv))
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", BEGIN, target, *told],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            env={**(variables or {}), **os.environ},
            start_new_session=True,  # Ctrl-C reaches only the parent, and `kill` reaches the whole group
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self.heard = queue.SimpleQueue[list[Any] | None]()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        """Queue each message of the subprocess, and None at the end."""
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with suppress(ValueError):  # truncated when it died
                    self.heard.put(json.loads(line))
        self.heard.put(None)

    def ask(
        self, argument: Any, seconds: float, hear: Callable[[Any], Any] = lambda said: None, before: float = 0.0
    ) -> Any:
        """Return the function's answer, within `seconds`; `hear` gets the messages sent before it.

        The timeout restarts whenever `hear` returns True; until it first does, the limit is the larger of `before` and
        `seconds`.

        Raises:
            NoAnswerError: the subprocess ended without an answer, timed out, or ran out of memory or recursion depth.
            UserError: the function raised one; a FaultError if it raised anything else, which is an error of ours.
        """
        whole = max(before, seconds)
        end = time.monotonic() + whole
        assert self.process.stdin is not None
        with suppress(OSError):  # it has ended
            self.process.stdin.write(json.dumps([argument, whole + 2 * seconds]).encode() + b"\n")
            self.process.stdin.flush()
        while (message := self.next_message(end)) is not None:
            kind, value = message
            if kind == "answer":
                return value
            if kind != "said":
                raise {"refused": UserError, "fault": FaultError}.get(kind, NoAnswerError)(value)
            if hear(value) is True:
                whole, end = seconds, time.monotonic() + seconds
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(max(end - time.monotonic(), 0))
        if self.process.returncode is not None:
            raise NoAnswerError(how_it_ended(self.process.returncode))
        self.kill()
        limit = count_of(int(whole), "second") if whole == int(whole) else f"{whole:g} seconds"
        raise NoAnswerError(f"it did not end within {limit}", late=True)

    def next_message(self, end: float) -> list[Any] | None:
        """Return the next message; None if the subprocess has ended or the time is over."""
        while (left := end - time.monotonic()) > 0:
            over = self.process.poll() is not None  # checked first, so that its last messages are still read
            try:
                return self.heard.get(timeout=min(LOOK, left))
            except queue.Empty:
                if over:  # a process that it started keeps the pipe open
                    return None
        return None

    def kill(self) -> None:
        """Kill the subprocess and everything it started."""
        system.kill_group(self.process)

    def close(self) -> None:
        """Wait for the subprocess to exit by itself, then kill it if it has not."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(LAST_WORDS)
        self.kill()
        self.process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Close the subprocess; kill it first if the block raised."""
        if kind is not None:
            self.kill()
        self.close()


def how_it_ended(code: int) -> str:
    """Describe an exit code in words."""
    name = system.describe_exit(code)
    return f"{name}, {MEANINGS[name]}" if name in MEANINGS else name


MEANINGS = {
    "SIGSEGV": "a crash: it touched memory that is not its own",
    "SIGBUS": "a crash: it touched memory that is not there",
    "SIGABRT": "a library gave up",
    "SIGFPE": "a crash in arithmetic",
    "SIGILL": "an instruction that this processor does not know",
    "SIGKILL": "it was killed, perhaps as memory ran out",
    "SIGTERM": "it was asked to end",
}


# What runs in the subprocess


def serve(target: str) -> None:
    """Answer requests from stdin with the function `module:function`, until stdin closes.

    Stdin and stdout are the parent's pipes. They are duplicated to other descriptors before any user code is imported:
    what that code prints, in Python or below it, goes to stderr, and its stdin is empty.
    """
    requests, answers = os.dup2(0, ASIDE, inheritable=False), os.dup2(1, ASIDE + 1, inheritable=False)
    nothing = os.open(os.devnull, os.O_RDWR)
    for source, number in ((nothing, 0), (nothing, 1), (2, 1)):
        with suppress(OSError):  # stderr may be closed
            os.dup2(source, number)
    sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr] # a text stream
    questions = queue.SimpleQueue[list[Any] | None]()
    threading.Thread(target=receive, args=(requests, questions), daemon=True).start()
    stream = open(answers, "wb")  # noqa: SIM115 - open to the end

    def send(kind: str, value: Any) -> None:
        stream.write(json.dumps([kind, value]).encode() + b"\n")
        stream.flush()

    with suppress(Exception):  # raised again on the first request
        resolve_name(target)
    while (question := questions.get()) is not None:
        argument, seconds = question
        # ends the process even if a library never releases the interpreter and the parent is gone
        faulthandler.dump_traceback_later(seconds + ORPHANED, exit=True, file=nothing)
        try:
            send("answer", resolve_name(target)(argument, lambda said: send("said", said)))
        except UserError as error:
            send("fault" if isinstance(error, FaultError) else "refused", str(error))
        except BaseException as error:
            ours = isinstance(error, Exception) and not (isinstance(error, RecursionError) or out_of_memory(error))
            send(
                *(("fault", fault_line(error)) if ours else ("raised", f"{type(error).__name__}: {first_line(error)}"))
            )


def receive(requests: int, questions: queue.SimpleQueue[list[Any] | None]) -> NoReturn:
    """Queue the parent's requests, and exit this process when the parent has ended, whatever it is doing."""
    with open(requests, "rb") as lines:
        for line in lines:
            questions.put(json.loads(line))
    questions.put(None)
    time.sleep(LAST_WORDS)
    os._exit(0)
