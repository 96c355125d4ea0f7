"""Processes: a subprocess for code that may exit, hang or crash, a pool of workers, and operating system differences.

`Child` calls a function of this package in a subprocess, for user code and for libraries that abort. Parent and
subprocess exchange JSON lines; what the function prints goes to stderr.

`Pool` gives each worker one job at a time. If a worker dies, only that job is lost; the pools of the standard library
lose every running job, or wait forever. All these processes end with their parent.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pkgutil import resolve_name
from types import FrameType
from typing import Any, BinaryIO

from attn_exp.errors import FaultError, UserError, fault_line, out_of_memory
from attn_exp.own_code import error_line


def stop(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM like Ctrl-C, so that unfinished work is cleaned up before the process exits."""
    raise KeyboardInterrupt(number)


def exit_code(interrupt: KeyboardInterrupt) -> int:
    return 128 + int(interrupt.args[0] if interrupt.args else signal.SIGINT)


def format_duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:,.0f} days"


def usable_cores() -> int:
    """Return the number of cores that this process may use, which a container or `taskset` can limit."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_memory(most: int) -> None:
    """Limit this process's memory to `most` bytes, where the system supports it, and disable core dumps."""
    with suppress(ImportError, OSError, ValueError):  # a lower limit may be in force already
        import resource  # noqa: PLC0415 - not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def processor_asker() -> Callable[[], int] | None:
    """Return a function that tells on which processor the calling thread runs; None if affinity cannot be set."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    import ctypes  # noqa: PLC0415 - few need it

    return getattr(ctypes.CDLL(None), "sched_getcpu", None)


def keep_off(processor: int, thread: int) -> bool:
    """Let a thread (by its system id) run on all usable processors except `processor`; return whether this worked."""
    with suppress(OSError):  # processors can become unavailable at any time
        os.sched_setaffinity(thread, os.sched_getaffinity(0) - {processor})
        return True
    return False


def describe_exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


# A subprocess for one function

BEGIN = """import json, sys
target, *rest = sys.argv[1:]
sys.path[:], sys.argv[:] = map(json.loads, rest)
from attn_exp.processes import serve
serve(target)"""
"""Code that the subprocess runs first: it takes over the parent's `sys.path` and `sys.argv`."""
LAST_WORDS = 1.0
"""Seconds a subprocess has to exit by itself (closing files, running hooks) once there are no more requests."""


class NoAnswerError(Exception):
    """A subprocess gave no answer.

    The message describes how it ended, such as `exit code 3`; `late` is true if it was killed after a timeout.
    """

    def __init__(self, how: str, late: bool = False) -> None:
        super().__init__(how)
        self.late = late


class Child(AbstractContextManager["Child"]):
    """A subprocess that serves one function of this package: `with Child("attn_exp.room.file:function") as child`.

    The subprocess starts at once, so that its start-up and imports overlap with other work, and is closed at the end of
    the context. The function is called as `function(argument, tell)`. Its argument, its answer and the messages that it
    sends with `tell` must be JSON values.

    - `quiet`: drop what the function prints.
    - `variables`: environment variables to set in the subprocess, unless they are set already.

    Raises:
        OSError: the process cannot be started.
    """

    def __init__(self, target: str, *, quiet: bool = False, variables: Mapping[str, str] | None = None) -> None:
        self.process: Any = subprocess.Popen(
            [sys.executable, "-P", "-c", BEGIN, target, json.dumps(sys.path, default=str), json.dumps(sys.argv)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            env={**(variables or {}), **os.environ},
            start_new_session=True,  # Ctrl-C reaches only the parent, and `kill` reaches the whole group
        )
        self.messages = queue.SimpleQueue[list[Any] | None]()
        threading.Thread(target=receive, args=(self.process.stdout, self.messages), daemon=True).start()

    def ask(
        self,
        argument: Any,
        seconds: float,
        on_message: Callable[[Any], Any] = lambda message: None,
        first_timeout: float = 0.0,
    ) -> Any:
        """Return the function's answer, waiting up to `seconds`; `on_message` gets each message of the function.

        Whenever `on_message` returns True, another `seconds` begin. Until it first does, the timeout is the larger of
        `first_timeout` and `seconds`.

        Raises:
            NoAnswerError: the subprocess ended without an answer, timed out, or ran out of memory or recursion depth.
            UserError: the function raised a UserError.
            FaultError: the function raised any other exception, which is an internal error.
        """
        timeout = max(first_timeout, seconds)
        deadline = time.monotonic() + timeout
        with suppress(OSError):  # it has ended
            self.process.stdin.write(json.dumps([argument]).encode() + b"\n")
            self.process.stdin.flush()
        with suppress(queue.Empty):
            while (message := self.messages.get(timeout=max(deadline - time.monotonic(), 0))) is not None:
                kind, value = message
                if kind == "answer":
                    return value
                if kind != "said":
                    raise {"refused": UserError, "fault": FaultError}.get(kind, NoAnswerError)(value)
                if on_message(value) is True:
                    timeout, deadline = seconds, time.monotonic() + seconds
        with suppress(subprocess.TimeoutExpired):
            raise NoAnswerError(describe_exit(self.process.wait(max(deadline - time.monotonic(), 0))))
        self.kill()
        raise NoAnswerError(f"it did not finish within {timeout:g} second{'s' * (timeout != 1)}", late=True)

    def kill(self) -> None:
        with suppress(OSError):  # it has ended
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()

    def close(self) -> None:
        """Wait for the subprocess to exit by itself, then kill it if it has not."""
        with suppress(OSError):
            self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(LAST_WORDS)
        self.kill()
        self.process.wait()

    def __exit__(self, *error: object) -> None:
        self.close()


def receive(lines: BinaryIO, messages: queue.SimpleQueue[Any]) -> None:
    with lines, suppress(ValueError):  # the last line is truncated if the other side died
        for line in lines:
            messages.put(json.loads(line))
    messages.put(None)


def serve(target: str) -> None:
    """Answer requests from stdin with the function `target` until stdin closes: the main loop of the subprocess.

    Stdin and stdout are the parent's pipes. They are duplicated to other descriptors before any user code is imported,
    so that whatever user code prints, from Python or from C, goes to stderr, and its stdin is empty.
    """
    # os.dup takes the lowest free descriptor, which is 2 if stderr is closed; few programs use 200 or 201
    request_pipe, reply_pipe = os.dup2(0, 200, inheritable=False), os.dup2(1, 201, inheritable=False)
    null = os.open(os.devnull, os.O_RDWR)
    for source, number in ((null, 0), (null, 1), (2, 1)):
        with suppress(OSError):  # stderr may be closed
            os.dup2(source, number)
    sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr] # a text stream
    requests = queue.SimpleQueue[Any]()
    threading.Thread(target=receive_and_exit, args=(open(request_pipe, "rb"), requests), daemon=True).start()  # noqa: SIM115
    stream = open(reply_pipe, "wb")  # noqa: SIM115 - stays open until the process exits

    def send(kind: str, value: Any) -> None:
        stream.write(json.dumps([kind, value]).encode() + b"\n")
        stream.flush()

    with suppress(Exception):  # raised again on the first request
        resolve_name(target)
    while (request := requests.get()) is not None:
        try:
            send("answer", resolve_name(target)(request[0], lambda message: send("said", message)))
        except UserError as error:
            send("fault" if isinstance(error, FaultError) else "refused", str(error))
        except BaseException as error:
            is_theirs = not isinstance(error, Exception) or isinstance(error, RecursionError) or out_of_memory(error)
            send(*(("raised", error_line(error)) if is_theirs else ("fault", fault_line(error))))


def receive_and_exit(lines: BinaryIO, requests: queue.SimpleQueue[Any]) -> None:
    """Queue the parent's requests; once the parent closes the pipe or ends, exit, whatever this process is doing."""
    receive(lines, requests)
    time.sleep(LAST_WORDS)
    os._exit(0)


# A pool of workers


class Pool:
    """A pool of `count` processes that run `task` on each job.

    If a process dies, another replaces it, and `died(job, reason)` returns the answer to its job.

    - `capacity`: how many unfinished jobs to submit: more than there are workers, so that no worker waits for one.
    - `processes`: the worker at each pipe. `running`: the job of each busy worker, by its pipe.
    - `waiting`: the jobs that no worker has started.
    """

    def __init__(self, task: Callable[[Any], Any], count: int, died: Callable[[Any, str], Any]) -> None:
        self.task, self.died, self.waiting, self.capacity = task, died, deque[Any](), count + 2
        self.processes, self.running = dict[Any, Any](), dict[Any, Any]()
        for _ in range(count):
            self.start_worker()

    def start_worker(self) -> None:
        """Start a worker process; on Linux it is forked, which is fast, but not safe elsewhere."""
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        pipe, worker_pipe = context.Pipe()
        process = context.Process(target=work, args=(self.task, worker_pipe), daemon=True)  # type: ignore[attr-defined] # as both have it
        process.start()
        worker_pipe.close()
        self.processes[pipe] = process

    def submit(self, job: Any) -> None:
        self.waiting.append(job)
        self.assign_jobs()

    def assign_jobs(self) -> None:
        for pipe in self.processes.keys() - self.running.keys():
            if self.waiting:
                self.running[pipe] = self.waiting.popleft()
                with suppress(OSError):  # it just died; `finished` handles that
                    pipe.send(self.running[pipe])

    def finished(self, seconds: float | None) -> list[Any]:
        """Return the answers to finished jobs, waiting up to `seconds` for the first; None means without limit."""
        from multiprocessing import connection  # noqa: PLC0415 - a run has no workers

        answers = list[Any]()
        ready: list[Any] = connection.wait([*self.running], seconds)
        for pipe in ready:
            job = self.running.pop(pipe)
            try:
                answers.append(pipe.recv())
            except (EOFError, OSError):
                process = self.processes.pop(pipe)
                process.join()
                how = "was killed by" if process.exitcode < 0 else "ended with"
                answers.append(self.died(job, f"its worker {how} {describe_exit(process.exitcode)}"))
                self.start_worker()
        self.assign_jobs()
        return answers

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()


def work(task: Callable[[Any], Any], pipe: Any) -> None:
    """Run jobs from `pipe` until it closes; leave Ctrl-C to the parent, and exit as soon as the parent has ended."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - only workers need it

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent: Any = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    with threadpool_limits(1), suppress(EOFError, OSError):
        while True:
            pipe.send(task(pipe.recv()))
