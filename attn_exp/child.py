"""A process of its own for what may end, hang or crash the one it runs in: code of others, libraries that abort.

`Child` starts one and asks a function of this package there; a child ends with the process that started it. What is
printed there goes to stderr: neither the code of others nor a library can mistake its stdout for the way of answers.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from types import TracebackType
from typing import Any, NoReturn

from attn_exp import system
from attn_exp.errors import FaultError, UserError, count_of, fault_line, first_line, out_of_memory

Tell = Callable[[Any], None]
"""What a function in a child says while it works, and what hears it."""

BEGIN = "import json,sys;target,*rest=sys.argv[1:];sys.path[:],sys.argv[:]=map(json.loads,rest);"
BEGIN += "from attn_exp.child import serve;serve(target)"
"""How a child begins: with the paths of the process that starts it, and none of its working folder before them."""
FLAGS = {"optimize": "-O", "dont_write_bytecode": "-B", "ignore_environment": "-E", "no_user_site": "-s"}
"""Options of Python that a child gets where this process has them."""
LOOK = 0.2
"""Seconds after which a child that says nothing is looked at: has it ended?"""
LAST_WORDS = 1.0
"""Seconds that a child has to end by itself when nothing more is asked of it: files are closed, hooks are called."""
ORPHANED = 5.0
"""Seconds after its longest time is over at which a child ends by itself, if nobody is left to end it."""


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
        options = [option for name, option in FLAGS.items() if getattr(sys.flags, name)]
        told = (json.dumps([str(path) for path in sys.path]), json.dumps(sys.argv))
        self.process = subprocess.Popen(
            [sys.executable, "-P", *options, "-c", BEGIN, target, *told],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            env={**(variables or {}), **os.environ},
            start_new_session=True,  # so that Ctrl-C comes to its parent alone, and what it starts can be ended with it
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self.heard = queue.SimpleQueue[dict[str, Any] | None]()
        self.ear = threading.Thread(target=self.listen, daemon=True)
        self.ear.start()

    def listen(self) -> None:
        """Hear what the child says, up to the end; what is no message was written by somebody else."""
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                try:
                    message = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(message, dict):
                    self.heard.put(message)
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
        self.send({"ask": argument, "seconds": whole + 2 * seconds})
        while True:
            message = self.next_message(end, whole)
            if "said" in message:
                if hear(message["said"]) is True:
                    whole, end = seconds, time.monotonic() + seconds
            elif "refused" in message:
                raise UserError(str(message["refused"]))
            elif "fault" in message:
                raise FaultError(str(message["fault"]))
            elif "raised" in message:
                raise NoAnswerError(str(message["raised"]))
            elif "answer" in message:
                return message["answer"]

    def next_message(self, end: float, seconds: float) -> dict[str, Any]:
        """Return the next thing that the child says.

        Raises:
            NoAnswerError: it ended, or the time is over.
        """
        while (left := end - time.monotonic()) > 0:
            over = self.process.poll() is not None  # looked at first: what it said before it ended is heard yet
            try:
                message = self.heard.get(timeout=min(LOOK, left))
            except queue.Empty:
                if over:  # a process that it left behind keeps the pipe open
                    break
                continue
            if message is not None:
                return message
            try:
                self.process.wait(max(end - time.monotonic(), 0))
            except subprocess.TimeoutExpired:  # it closed the pipe and goes on
                break
        code = self.process.poll()
        if code is not None:
            raise NoAnswerError(how_it_ended(code))
        self.kill()
        raise NoAnswerError(f"it did not end within {count_of_seconds(seconds)}", late=True)

    def send(self, message: Any) -> None:
        """Write one line to the child; one that has ended reads none."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            return

    def kill(self) -> None:
        """End the child and what it started, at once."""
        system.end_at_once(self.process.pid, group=True)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Let the child end, or end it where nobody waits for it any more."""
        if kind is None:
            self.close()
        else:
            self.end()

    def close(self) -> None:
        """Let the child end by itself, and end it where it does not."""
        try:
            self.send({"end": True})
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(LAST_WORDS)
        finally:
            self.end()

    def end(self) -> None:
        """End the child at once, and wait for it."""
        self.kill()
        self.process.wait()
        self.ear.join(LOOK)
        assert self.process.stdin is not None
        with suppress(OSError):  # what was not sent yet
            self.process.stdin.close()


def count_of_seconds(seconds: float) -> str:
    """Return a number of seconds in words."""
    return count_of(int(seconds), "second") if seconds == int(seconds) else f"{seconds:g} seconds"


def how_it_ended(code: int) -> str:
    """Say how a process ended that has this exit code."""
    if code >= 0:
        return f"exit code {code}" if code < 2**31 else f"exit code 0x{code:X}"  # Windows numbers its crashes so
    known = {one.value: one.name for one in signal.Signals}
    meaning = MEANINGS.get(known.get(-code, ""), "")
    return f"{known.get(-code, f'signal {-code}')}{f', {meaning}' if meaning else ''}"


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
    requests, answers, nothing = system.aside(0), system.aside(1), os.open(os.devnull, os.O_RDWR)
    move_standard_streams(nothing)
    questions = queue.SimpleQueue[dict[str, Any]]()
    threading.Thread(target=receive, args=(requests, questions), daemon=True).start()
    owner, turn = os.getpid(), threading.Lock()

    def send(message: dict[str, Any]) -> None:
        if os.getpid() != owner:  # a copy of this process, which the code forked and let return
            os._exit(0)
        data = memoryview(b"\n" + json.dumps(message).encode() + b"\n")
        with turn:
            while data:
                data = data[os.write(answers, data) :]

    function = found(target)
    while "end" not in (question := questions.get()):
        # also where no Python runs any more, as a library holds on to the interpreter, and nobody is left to end it
        faulthandler.dump_traceback_later(question["seconds"] + ORPHANED, exit=True, file=nothing)
        try:
            send({"answer": function(question["ask"], lambda said: send({"said": said}))})
        except FaultError as error:
            send({"fault": str(error)})
        except UserError as error:
            send({"refused": str(error)})
        except KeyboardInterrupt:
            os._exit(130)
        except BaseException as error:
            ours = isinstance(error, Exception) and not (isinstance(error, RecursionError) or out_of_memory(error))
            send({"fault": fault_line(error)} if ours else {"raised": f"{type(error).__name__}: {first_line(error)}"})


def found(target: str) -> Callable[[Any, Tell], Any]:
    """Import and return a function; where that fails, one that raises the error, which is told when it is asked."""
    module, _, name = target.partition(":")
    try:
        function: Callable[[Any, Tell], Any] = getattr(import_module(module), name)
    except Exception as error:
        fault = FaultError(fault_line(error))

        def function(argument: Any, tell: Tell) -> NoReturn:
            raise fault

    return function


def move_standard_streams(nothing: int) -> None:
    """Let stdin be empty, and what is printed to stdout go to stderr, or nowhere where that is closed."""
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:
        os.dup2(nothing, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)


def receive(requests: int, questions: queue.SimpleQueue[dict[str, Any]]) -> NoReturn:
    """Hand on what the parent asks, and end this process when the parent has ended, whatever it is doing."""
    with open(requests, "rb") as lines:
        for line in lines:
            questions.put(json.loads(line))
    os._exit(0)
