"""Processes of our own: one for code that may exit, hang or crash, and a pool of workers.

`Child` starts a subprocess for user code and libraries that abort, and calls a function of this package in it,
exchanging JSON lines. What the function prints goes to stderr. `Pool` holds one job per worker, so that a death costs
that job alone; pools of the standard library lose every running job then, or wait for it forever. All of them end with
their parent process.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from pkgutil import resolve_name
from typing import Any, BinaryIO

from attn_exp import system
from attn_exp.errors import FaultError, UserError, fault_line, out_of_memory
from attn_exp.own_code import error_line

Tell = Callable[[Any], None]
"""Callback through which a function in the subprocess reports progress, and the parent receives it."""

BEGIN = """import json, sys
target, *rest = sys.argv[1:]
sys.path[:], sys.argv[:] = map(json.loads, rest)
from attn_exp.processes import serve
serve(target)"""
"""Code that the subprocess starts with: it gets the parent's `sys.path`, without the working folder in front."""
LAST_WORDS = 1.0
"""Seconds a subprocess has to exit by itself (closing files, running hooks) once there are no more requests."""
ASIDE = 200
"""File descriptor of the request pipe, which user code hardly opens by mistake; replies use the next one."""
MEANINGS = {
    "SIGSEGV": "a crash: it accessed invalid memory",
    "SIGBUS": "a crash: it accessed memory that does not exist",
    "SIGABRT": "a library aborted it",
    "SIGFPE": "an arithmetic error",
    "SIGILL": "an instruction that this processor does not support",
    "SIGKILL": "it was killed, perhaps because memory ran out",
    "SIGTERM": "it was terminated",
}


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
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", BEGIN, target, json.dumps(list(map(str, sys.path))), json.dumps(sys.argv)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            env={**(variables or {}), **os.environ},
            start_new_session=True,  # Ctrl-C reaches only the parent, and `kill` reaches the whole group
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self.messages = queue.SimpleQueue[list[Any] | None]()
        threading.Thread(target=receive, args=(self.process.stdout, self.messages), daemon=True).start()

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
        limit = max(before, seconds)
        end = time.monotonic() + limit
        assert self.process.stdin is not None
        with suppress(OSError):  # it has ended
            self.process.stdin.write(json.dumps([argument]).encode() + b"\n")
            self.process.stdin.flush()
        with suppress(queue.Empty):
            while (message := self.messages.get(timeout=max(end - time.monotonic(), 0))) is not None:
                kind, value = message
                if kind == "answer":
                    return value
                if kind != "said":
                    raise {"refused": UserError, "fault": FaultError}.get(kind, NoAnswerError)(value)
                if hear(value) is True:
                    limit, end = seconds, time.monotonic() + seconds
        with suppress(subprocess.TimeoutExpired):
            ended = system.describe_exit(self.process.wait(max(end - time.monotonic(), 0)))
            raise NoAnswerError(f"{ended}, {MEANINGS[ended]}" if ended in MEANINGS else ended)
        self.kill()
        raise NoAnswerError(f"it did not end within {limit:g} second{'s' * (limit != 1)}", late=True)

    def kill(self) -> None:
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

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            self.kill()
        self.close()


def receive(lines: BinaryIO, messages: queue.SimpleQueue[Any]) -> None:
    with lines, suppress(ValueError):  # truncated when the other side died
        for line in lines:
            messages.put(json.loads(line))
    messages.put(None)


def serve(target: str) -> None:
    """Answer requests from stdin with the function `module:function`, until stdin closes: the subprocess runs this.

    Stdin and stdout are the parent's pipes. They are duplicated to other descriptors before any user code is imported:
    what that code prints, in Python or below it, goes to stderr, and its stdin is empty.
    """
    requests, replies = os.dup2(0, ASIDE, inheritable=False), os.dup2(1, ASIDE + 1, inheritable=False)
    nothing = os.open(os.devnull, os.O_RDWR)
    for source, number in ((nothing, 0), (nothing, 1), (2, 1)):
        with suppress(OSError):  # stderr may be closed
            os.dup2(source, number)
    sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr] # a text stream
    questions = queue.SimpleQueue[Any]()
    threading.Thread(target=receive_and_exit, args=(open(requests, "rb"), questions), daemon=True).start()  # noqa: SIM115
    stream = open(replies, "wb")  # noqa: SIM115 - open to the end

    def send(kind: str, value: Any) -> None:
        stream.write(json.dumps([kind, value]).encode() + b"\n")
        stream.flush()

    with suppress(Exception):  # raised again on the first request
        resolve_name(target)
    while (question := questions.get()) is not None:
        try:
            send("answer", resolve_name(target)(question[0], lambda said: send("said", said)))
        except FaultError as error:
            send("fault", str(error))
        except UserError as error:
            send("refused", str(error))
        except BaseException as error:
            is_theirs = not isinstance(error, Exception) or isinstance(error, RecursionError) or out_of_memory(error)
            send(*(("raised", error_line(error)) if is_theirs else ("fault", fault_line(error))))


def receive_and_exit(lines: BinaryIO, questions: queue.SimpleQueue[Any]) -> None:
    """Queue the parent's requests; when the parent has ended or is done, exit, whatever this process is doing."""
    receive(lines, questions)
    time.sleep(LAST_WORDS)
    os._exit(0)


@dataclass
class Worker:
    """A process, the pipe to it, and its current job."""

    process: Any
    pipe: Any
    job: Any = None


@dataclass(frozen=True)
class Ended:
    """A finished job: its answer, or the `reason` why its worker gave none."""

    job: Any
    answer: Any = None
    reason: str = ""


class Pool:
    """A few processes that run one task; one that dies is replaced, and its job is returned as ended."""

    def __init__(self, task: Callable[[Any], Any], count: int) -> None:
        self.task, self.waiting = task, deque[Any]()
        self.workers = [self.start_worker() for _ in range(count)]

    def start_worker(self) -> Worker:
        ours, theirs = multiprocessing.Pipe()
        process = system.start_worker(work, self.task, theirs)
        theirs.close()
        return Worker(process, ours)

    def submit(self, job: Any) -> None:
        self.waiting.append(job)
        self.hand_out()

    def hand_out(self) -> None:
        for worker in self.workers:
            if worker.job is None and self.waiting:
                worker.job = self.waiting.popleft()
                with suppress(OSError):  # it just died; `finished` handles that
                    worker.pipe.send(worker.job)

    def finished(self, seconds: float | None) -> list[Ended]:
        """Return the jobs that ended, waiting up to `seconds` for the first, or without limit for None."""
        ready, ended = (
            connection.wait([worker.pipe for worker in self.workers if worker.job is not None], seconds),
            list[Ended](),
        )
        for place, worker in enumerate(self.workers):
            if worker.pipe in ready:
                try:
                    ended.append(Ended(worker.job, worker.pipe.recv()))
                    worker.job = None
                except (EOFError, OSError):
                    ended.append(Ended(worker.job, reason=self.bury(worker)))
                    self.workers[place] = self.start_worker()
        self.hand_out()
        return ended

    def bury(self, worker: Worker) -> str:
        """Let a worker that closed its pipe end, and return how it did."""
        worker.process.join(5)
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        code = worker.process.exitcode
        return f"its worker {'was killed by' if code < 0 else 'ended with'} {system.describe_exit(code)}"

    def close(self) -> None:
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.join()
            worker.pipe.close()


def work(task: Callable[[Any], Any], pipe: Any) -> None:
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - only workers need it

    system.serve_parent()
    with threadpool_limits(1), suppress(EOFError, OSError):
        while True:
            pipe.send(task(pipe.recv()))
