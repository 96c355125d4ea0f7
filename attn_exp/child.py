"""A process of its own for what may end, hang or crash the one it runs in: code of others, libraries that abort.

`Child` starts one and calls a function of this package there, by lines of JSON; it ends with the process that started
it. What is printed there goes to stderr.
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
"""What a function in a child says while it works, and what hears it."""

BEGIN = "import json,sys;target,*rest=sys.argv[1:];sys.path[:],sys.argv[:]=map(json.loads,rest);"
BEGIN += "from attn_exp.child import serve;serve(target)"
"""How a child begins: with the paths of the process that starts it, and none of its working folder before them."""
LOOK = 0.2
"""Seconds after which a child that says nothing is looked at: has it ended?"""
LAST_WORDS = 1.0
"""Seconds that a child has to end by itself when nothing more is asked of it: files are closed, hooks are called."""
ORPHANED = 5.0
"""Seconds after its longest time is over at which a child ends by itself, if nobody is left to end it."""
ASIDE = 200
"""The number of the pipe of questions, which code of others hardly opens by mistake; the next is that of answers."""


class NoAnswerError(Exception):
    """A child gave no answer.

    `how` says in a few words how it ended, such as `exit code 3`; `late`, that it did not in its time, and was ended.
    """

    def __init__(self, how: str, late: bool = False) -> None:
        super().__init__(how)
        self.how, self.late = how, late


class Child:
    """A process in which a function of this package is asked: `with Child("attn_exp.room.file:function") as child`.

    It starts at once, so that its start and its imports overlap with what else is to be done, and ends where the
    context does. The function is called as `function(argument, tell)`; its argument and its answer are what JSON can
    hold, and so is what it says by `tell` while it works. `quiet` drops what is printed there. `variables` of its
    environment are set where nobody has set them.

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
            start_new_session=True,  # so that Ctrl-C comes to its parent alone, and what it starts can be ended with it
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self.heard = queue.SimpleQueue[list[Any] | None]()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        """Hear what the child says, and None at the end."""
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with suppress(ValueError):  # cut short as it ended
                    self.heard.put(json.loads(line))
        self.heard.put(None)

    def ask(
        self, argument: Any, seconds: float, hear: Callable[[Any], Any] = lambda said: None, before: float = 0.0
    ) -> Any:
        """Return what the function answers within so many seconds; `hear` gets what it says before.

        The clock starts anew where `hear` returns True; until it first does, there are `before` seconds, if these are
        more.

        Raises:
            NoAnswerError: the child ended without an answer, the time was over, or it ran out of memory or of depth.
            UserError: the function raised one; a FaultError where it raised anything else, which is an error of ours.
        """
        whole = max(before, seconds)
        end = time.monotonic() + whole
        assert self.process.stdin is not None
        with suppress(OSError):  # one that has ended reads nothing
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
        """Return the next thing that the child says; None where it has ended, or the time is over."""
        while (left := end - time.monotonic()) > 0:
            over = self.process.poll() is not None  # looked at first: what it said before it ended is heard yet
            try:
                return self.heard.get(timeout=min(LOOK, left))
            except queue.Empty:
                if over:  # a process that it left behind keeps the pipe open
                    return None
        return None

    def kill(self) -> None:
        """End the child and what it started, at once."""
        system.kill_group(self.process)

    def close(self) -> None:
        """Let the child end by itself, and end it where it does not."""
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
        """Let the child end, or end it where nobody waits for it any more."""
        if kind is not None:
            self.kill()
        self.close()


def how_it_ended(code: int) -> str:
    """Say how a process ended that has this exit code."""
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


# What runs in the child


def serve(target: str) -> None:
    """Answer what comes through stdin by a function, `module:function`, until nobody asks any more.

    Stdin and stdout are the pipes of the parent. They are moved aside before any code of others is imported: what that
    code prints, in Python or below it, goes to stderr, and what it reads is empty.
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

    with suppress(Exception):  # it is raised again when it is asked
        resolve_name(target)
    while (question := questions.get()) is not None:
        argument, seconds = question
        # also where no Python runs any more, as a library holds on to the interpreter, and nobody is left to end it
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
    """Hand on what the parent asks, and end this process when the parent has ended, whatever it is doing."""
    with open(requests, "rb") as lines:
        for line in lines:
            questions.put(json.loads(line))
    questions.put(None)
    time.sleep(LAST_WORDS)
    os._exit(0)
