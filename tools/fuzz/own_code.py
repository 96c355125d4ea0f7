"""Files of somebody's own code, given to `attn-exp check`: functions that exit, crash, hang, print, and answer oddly.

A file is a right function with one or two odd things in it: as it is imported, as it is called, or in what it returns.
Whatever it is, the command ends in time with a verdict, or with one line where it could not be asked; what is wrong
does not pass; JSON is JSON; and no process is left behind.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from unittest.mock import patch

import attn_exp.diagnosis.command  # noqa: F401 - loaded once here, and not in each fork
from attn_exp import child
from attn_exp.diagnosis import in_child
from attn_exp.errors import EXIT_CODES, UserError, printable
from tools.fuzz._load import others
from tools.fuzz._processes import AFTER, SECONDS, environment

LIMIT, USUAL = 4, 20
"""Seconds that a check is given in an attempt that is to hang, and in any other: some of the code under test reads on
without end. The command must answer within some seconds more, however long the code takes."""
REAL = 8
"""One attempt of so many is the command as a user gives it; the others fork, to be quick."""


FILE = """
import sys, os, signal, threading, time, warnings, atexit, ctypes, random, math
import numpy as np
count = [0]
class Evil(Exception):
    def __str__(self): raise RuntimeError("no words")
    __repr__ = __str__
class Silent(Exception):
    def __str__(self): return ""
class Long(BaseException): pass
{code}
def attention(q, k, v, is_causal=False):
    count[0] += 1
    {call}
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if is_causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    out = powers / powers.sum(-1, keepdims=True) @ v
    return {answer}
"""


def listed(text: str) -> list[str]:
    """Return pieces of Python, which stand between bars; a pilcrow is the end of a line in one."""
    return [piece.strip().replace("¶", "\n") for line in text.splitlines() for piece in line.split(" | ") if piece]


ENDS = listed(
    r"""
sys.exit(0) | sys.exit('bye') | raise SystemExit | os._exit(0) | os._exit(3) | os.abort() | exit()
ctypes.string_at(0) | os.kill(os.getpid(), signal.SIGKILL) | os.kill(os.getpid(), signal.SIGTERM)
raise Long('end') | raise KeyboardInterrupt | raise GeneratorExit | signal.raise_signal(signal.SIGINT)
os.execv('/bin/true', ['true']) | os.kill(0, signal.SIGKILL)
"""
)
"""What ends a process, or would."""
ERRORS = listed(
    r"""
raise Evil | raise Silent | raise ValueError('\n') | raise ValueError('a\nb\x1b[31m\x7f\ud800')
raise MemoryError | 1 / 0 | raise RecursionError | raise StopIteration | raise Exception(Evil())
raise ValueError('x' * 10**6) | np.empty(2**60) | assert False | raise NotImplementedError
raise OSError(2, 'no such thing') | raise UnicodeDecodeError('utf-8', b'x', 0, 1, 'r')
raise ExceptionGroup('g', [ValueError()]) | (lambda f: f(f))(lambda f: f(f)) | input()
raise type('E' * 500, (Exception,), {})
"""
)
"""Errors, some of which cannot say what they are."""
HANGS = listed(
    r"""
while True: pass | time.sleep(600) | threading.Lock().acquire() and threading.Event().wait()
signal.pause() | import re; re.match('(a+)+$', 'a' * 60 + 'b')
"""
)
HARMLESS = listed(
    r"""
print('words' * 99) | os.write(1, b'{"answer": 1}\n') | sys.stdout.buffer.write(b'\xff\x00')
print('w' * 1000000) if count[0] < 9 else 0 | os.close(1) | sys.stdout.close() | sys.stdout = None
sys.stdout = open(os.devnull, 'w') | os.dup2(2, 1) | sys.stderr.write('words\n') | os.closerange(0, 2)
os.environ.clear() | os.chdir('/') | np.seterr(all='raise') | warnings.simplefilter('error')
warnings.warn('words') | np.random.seed(0) | random.seed(1) | signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, lambda *given: None) | sys.argv[:] = [] | sys.path.clear()
atexit.register(print, 'bye') | sys.setswitchinterval(1) | atexit.register(time.sleep, 600)
threading.Thread(target=time.sleep, args=[600]).start()
threading.Thread(target=time.sleep, args=[600], daemon=True).start() | sys.stderr.close()
atexit.register(os._exit, 7) | sys.modules.pop('json', None) | sys.modules.pop('attn_exp', None)
os.system('echo words') | sys.excepthook = None | sys.setprofile(lambda *given: None)
(os.fork() or os._exit(0)) if count[0] < 3 else 0 | print = None | sys.stdin = None
os.popen('sleep 600') if count[0] < 2 else 0 | signal.alarm(0) | q = q + 0
os.system('sleep 600 &') if count[0] < 2 else 0 | sys.settrace(None) | np.set_printoptions(precision=1)
import gc; gc.collect(0) | globals()['np'] = __import__('numpy') | sys.displayhook = None
warnings.filterwarnings('error', category=RuntimeWarning) | import locale; locale.setlocale(0, 'C')
print(end='\r\x1b[2J') | sys.stdout.write('\ud800')
"""
)
"""What changes a process, but not the numbers."""
WRONG = listed(
    r"""
out + 0j | out.astype(str) | out.astype(object) | out.astype(bool) | out > 0 | np.ma.masked_all(out.shape)
np.ma.masked_greater(out, 0) | None | out.tolist() | out.sum() | np.float64(1) | 3 | 'words' | b'bytes'
np.empty(out.shape, 'M8[s]') | np.zeros(out.shape, 'm8[s]') | np.broadcast_to(0.0, (2**20,) * 3) | () | []
np.broadcast_to(np.float32(1), (2**31, 7)) | out * np.nan | np.full_like(out, np.inf) | out[..., :0] | {}
out[None] | out[0] | out.ravel() | out.T | (out + 1j, out) | iter(out) | attention | (x for x in out)
lambda: out | type(out) | np | sys | NotImplemented | ... | Evil() | out.shape
np.array([out, 'a'], dtype=object) | out.astype([('a', float)]) | np.zeros((0,) * 32) | np.zeros((1,) * 32)
out.view(np.int64) | out.astype(np.int8) | out.astype('>f2').view('>u2') | out * 1e300 * 1e300 | -out
np.random.permutation(out.ravel()).reshape(out.shape) | out * np.random.rand() | out[..., ::-1]
out if count[0] < 5 else None | out if count[0] % 7 else out[0] | out if count[0] < 3 else sys.exit(0)
out if count[0] < 30 else os._exit(0) | out if count[0] < 9 else out.sum() | out if count[0] < 9 else 1 / 0
out if count[0] != 4 else out + 1 | out if count[0] < 20 else np.empty((3, 1, 4)) | range(9)
memoryview(b'x') | set() | np.dtype(float) | out.dtype | slice(3) | np.matrix([[1.0]]) | out.astype('S9')
{'output': 3}
"""
)
"""What is no right answer."""
RIGHT = listed(
    r"""
out | np.asfortranarray(out) | out.astype('>f8') | (out, powers) | dict(output=out, weights=powers)
np.ma.array(out) | out.view(type('Sub', (np.ndarray,), {})) | memoryview(np.ascontiguousarray(out))
dict(weights=out) | (out, None, 'words') | [out, Evil()] | {'out': out, 3: Evil()}
np.ascontiguousarray(out)[::1]
"""
)
OBJECTS = listed(
    r"""
@property¶    def shape(self): {evil} | shape = 'words'¶    def __array__(self, *g, **k): {evil}
shape = (1,)¶    def __array__(self, *g, **k): return 'words' | def __getattr__(self, name): {evil}
def __getattr__(self, name): return self | shape = -1 | shape = (10**30,)¶    def __len__(self): {evil}
@property¶    def __class__(self): {evil} | shape = None¶    __array__ = None
shape = ()¶    __iter__ = {evilf}
shape = (2, 3)¶    __array_interface__ = {{'shape': (2, 3), 'typestr': '<f8', 'data': (0, True), 'version': 3}}
shape = ()¶    def __array__(self, *g, **k): return self | shape = ()¶    dtype = 3¶    ndim = 'x'
shape = (4,)¶    def __getitem__(self, place): return 1.0¶    def __len__(self): return 4
"""
)
"""Bodies of classes whose objects are returned, or called."""
SIGNATURES = listed(
    r"""
attention.__signature__ = 3 | attention.__signature__ = Evil() | attention.__name__ = Evil.__name__ * 999
attention.__wrapped__ = attention | attention.__defaults__ = (Evil(),) | attention.__doc__ = 'x' * 10**6
attention.__defaults__ = (np.ones(3),) | attention.__annotations__ = {'q': Evil()}
attention.__module__ = Evil() | attention.__kwdefaults__ = {'a': 1} | del attention.__module__
def attention(): return 1 | def attention(*a, **k): return 1 | attention = 3 | attention = type
def attention(q, k, v, *, needed): return q | attention = lambda q, k, v: 1 | del attention
async def attention(q, k, v): return q | def attention(q, k, v): yield q | attention = np.exp
attention = print | def __getattr__(name): sys.exit(0)¶del attention
def __getattr__(name): raise Evil¶del attention
class attention:¶    def __init__(self, q, k, v): self.shape = q.shape
import functools; attention = functools.partial(attention) | attention = attention.__get__(3)
attention = staticmethod(attention) | attention = classmethod(attention) | sys.modules[__name__] = 3
sys.modules['numpy'] = None | sys.modules.clear() | np.exp = lambda x: x | np.sqrt = lambda x: 1.0
np.where = None | np.abs = lambda x: 0 | del np.isnan | sys.setrecursionlimit(60)
class M(type):¶    def __call__(cls, *a): sys.exit(0)¶class attention(metaclass=M): pass
class C:¶    def __call__(s, q, k, v): return Evil()¶    def __getattr__(s, name): sys.exit(0)¶attention = C()
class C:¶    __signature__ = property(lambda s: sys.exit(0))¶    def __call__(s, q, k, v): return q¶attention = C()
class C:¶    __class__ = property(lambda s: 1 / 0)¶    def __call__(s, q, k, v): return q¶attention = C()
class C:¶    def __call__(s, q, k, v): return q¶    def __getattribute__(self, name): raise Evil¶attention = C()
"""
)
"""What may be done to the function once it is there; none of it passes, as what is left computes something else."""
FINE = listed(
    r"""
attention.__signature__ = 3 | attention.__name__ | attention.__wrapped__ | attention.__defaults__
attention.__doc__ | attention.__annotations__ | attention.__module__ | attention.__signature__ = Evil()
del attention.__module__ | import functools | attention = staticmethod | sys.modules | sys.setrecursionlimit
attention.__kwdefaults__
"""
)
"""How those begin that leave the numbers right."""


def drawn(chance: random.Random) -> tuple[str, bool, bool]:
    """Return a file, whether it may pass, and whether only its time ends it."""
    code, call, answer, after = "", "", "out", ""
    right, hangs = True, False
    deed = chance.choice(ENDS + ERRORS + HARMLESS * 2 + (HANGS if chance.random() < 0.3 else []))
    harmless, late = deed in HARMLESS, deed in HANGS
    match chance.choice(("import", "call", "call", "some call", "answer", "answer", "object", "signature", "both")):
        case "import":
            code, right, hangs = deed, harmless, late
        case "call":
            call, right, hangs = deed, harmless, late
        case "some call":
            call, right, hangs = f"if count[0] == {chance.choice((1, 2, 5, 17, 60))}: {deed}", harmless, False
            right = True  # whichever calls it hits; what ends the process is looked at below
            hangs = late
        case "answer":
            answer = chance.choice([*WRONG, *WRONG, *RIGHT])
            right = answer in RIGHT
        case "object":
            evil = chance.choice(("sys.exit(0)", "raise Evil", "os._exit(0)", "return 7", "return (10**12,)"))
            body = chance.choice(OBJECTS).format(evil=evil, evilf="lambda self: sys.exit(0)")
            hangs = "__getitem__" in body  # NumPy reads such an object to its end, which it does not have
            code, answer, right = f"class Odd:\n    {body}", "Odd()", False
        case "signature":
            after = chance.choice(SIGNATURES)
            right = after.startswith(tuple(FINE))
        case "both":
            code, call = chance.choice(HARMLESS), chance.choice(HARMLESS)
            answer = chance.choice([*WRONG, *RIGHT])
            right = answer in RIGHT
    text = FILE.replace("{code}", code).replace("{call}", call).replace("{answer}", answer)
    return f"{text}\n{after}\n", right, hangs


def attempt(seed: int) -> str | None:
    """Check the function of a file, and return what fell."""
    chance = random.Random(seed)
    text, right, hangs = drawn(chance)
    words = ["mine.py:attention", *chance.sample(["--json", "mask=causal", "takes=numpy"], chance.choice((0, 1, 1, 2)))]
    words += ["--quick"] if chance.random() < 0.8 else []
    words += [f"timeout={LIMIT if hangs else USUAL}"]
    with tempfile.TemporaryDirectory(prefix="own-code-") as name:
        folder, ours = Path(name, "theirs"), Path(name, "ours")  # what is theirs may be deleted
        folder.mkdir()
        ours.mkdir()
        (folder / "mine.py").write_text(text, "utf-8", "surrogatepass")
        fell = tried(Places(folder, ours / "out", ours / "err"), words, right, real=seed % REAL == 0)
        end = time.monotonic() + AFTER * others()  # the system takes a moment to end what is killed
        while (left := [] if fell else processes_in(folder)) and time.monotonic() < end:
            time.sleep(0.05)
    said = fell or (f"left behind: {left}" if left else None)
    return said and f"{' '.join(words)}: {said} [{marked(text)}]"


def marked(text: str) -> str:
    """Return the lines of a file that are odd."""
    usual = set(FILE.splitlines())
    return " | ".join(line.strip() for line in text.splitlines() if line not in usual)


class Places(NamedTuple):
    """Where the code under test is, and where what is printed goes."""

    folder: Path
    out: Path
    err: Path


def tried(places: Places, words: list[str], right: bool, real: bool) -> str | None:
    """Obey the command, and return what is wrong with what it did."""
    start, busy = time.monotonic(), others()
    most = (float(words[-1].removeprefix("timeout=")) + SECONDS) * busy
    code = (by_command if real else by_fork)(places, words, most)
    seconds = time.monotonic() - start
    if code is None or seconds > max(most, most / busy * others()):
        return f"hung for {seconds:.0f} s"
    printed, errors = (path.read_text("utf-8", "replace") for path in places[1:])
    ours = [line for line in errors.splitlines() if line.startswith("attn_exp: error:")]
    wrong = {
        f"exit code {code}": code not in (0, 1, 2, 3),
        f"a traceback: {errors.strip().splitlines()[-1:]}": "Traceback" in errors + printed,
        "it passed": code == 0 and not right,
        "it was never imported": "before it was imported" in printed,
        f"{len(ours)} lines with exit code 2": (code == 2) != (len(ours) == 1),
        "words on stdout with exit code 2": code == 2 and "--json" not in words and not is_wrapper(printed),
        "no verdict": code in (0, 1) and "--json" not in words and ": " not in printed,
        "no JSON": "--json" in words and not (is_verdict(printed, code) or (code == 2 and not printed)),
        "an error of ours": "of attn_exp itself" in errors + printed or "in which attn_exp asks" in errors,
        "its words on stdout": "words" in printed.split("It computes")[0] or "\x1b" in printed,
    }
    return next((message for message, is_so in wrong.items() if is_so), None)


def by_command(places: Places, words: list[str], most: float) -> int | None:
    """Obey the command as a user does; return its exit code, or None where it does not end."""
    environ = environment() | {"PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "attn_exp", "check", *words]
    with places.out.open("wb") as out, places.err.open("wb") as err:
        process = subprocess.Popen(
            command, cwd=places.folder, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        try:
            return process.wait(most)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None


def by_fork(places: Places, words: list[str], most: float) -> int:
    """Obey it quickly: its child is a fork of this process, in which all is imported already."""
    printed, errors, code = io.StringIO(), "", 0

    def begin(command: list[str], **settings: Any) -> Fork:
        return Fork(places, command[command.index("-c") + 2])

    with patch("attn_exp.child.subprocess.Popen", begin), redirect_stdout(printed):
        try:
            text, code = in_child.checked(words)
            print(printable(text))
        except UserError as error:
            errors, code = f"attn_exp: error: {' '.join(str(error).splitlines())}\n", 2
    places.out.write_text(printed.getvalue(), "utf-8", "backslashreplace")
    with places.err.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"\n{errors}")
    return code


class Fork:
    """A fork of this process that serves a target, with as much of Popen as a child needs."""

    def __init__(self, places: Places, target: str) -> None:
        inward, outward = os.pipe(), os.pipe()
        self.pid = os.fork()
        self.returncode: int | None = None
        if not self.pid:
            self.serve(places, target, inward[0], outward[1])
        os.close(inward[0])
        os.close(outward[1])
        self.stdin, self.stdout = open(inward[1], "wb"), open(outward[0], "rb")  # noqa: SIM115 - as Popen's are

    def serve(self, places: Places, target: str, requests: int, answers: int) -> NoReturn:
        """Be the child: as it begins, and to the end."""
        try:
            atexit._clear()  # what this process would do at its end
            os.setsid()
            os.chdir(places.folder)
            signal.alarm(0)
            errors = os.open(places.err, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for one, other in ((requests, 0), (answers, 1), (errors, 2)):
                os.dup2(one, other)
            os.closerange(3, 64)
            sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 - to the end
            sys.path.insert(0, str(places.folder))
            child.serve(target)
        except SystemExit:
            pass
        except BaseException:
            traceback.print_exc()
        finally:
            try:  # as the end of an interpreter does
                threading._shutdown()  # type: ignore[attr-defined]
                atexit._run_exitfuncs()
                sys.stderr.flush()
            finally:
                os._exit(0)

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, timeout: float = SECONDS) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("fork", timeout)
            time.sleep(0.005)
        return code


def is_wrapper(printed: str) -> bool:
    """Say whether this is nothing, or code to be completed of what could not be called."""
    return not printed or printed.startswith("# complete the dots")


def is_verdict(printed: str, code: int) -> bool:
    """Say whether this is a verdict in JSON that says the same as the exit code, or why there is none."""
    try:
        verdict = json.loads(printed)
    except ValueError:
        return False
    if "uncalled" in verdict:
        return code == 3 and is_wrapper(verdict["wrapper"])
    return bool(EXIT_CODES[verdict["outcome"]] == code and verdict["findings"])


def processes_in(folder: Path) -> list[str]:
    """Return the processes that still run in a folder, where the system shows them."""
    left = list[str]()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(place / "cwd")) == folder:
                left.append((place / "cmdline").read_text().replace("\0", " ")[:80])
        except OSError:
            continue
    return left
