"""Files of somebody's own code, given to `attn-exp check`: functions that exit, crash, hang, print, and answer oddly.

A file is a right function with one or two odd things in it: as it is imported, as it is called, or in what it returns.
Whatever it is, the command ends in time with a verdict, or with one line where it could not be asked; what is wrong
does not pass; JSON is JSON; and no process is left behind.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

import attn_exp.diagnosis.command  # noqa: F401 - loaded once here, and not in each fork
from attn_exp.errors import EXIT_CODES
from tools.fuzz._processes import Command

LIMIT, USUAL, SECONDS = 4, 20, 10
"""Seconds that a check is given in an attempt that is to hang, and in any other, and how much later it must have ended:
some of the code under test reads on without end."""

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
    limit = LIMIT if hangs else USUAL
    with tempfile.TemporaryDirectory(prefix="own-code-") as name:
        folder = Path(name)
        (folder / "mine.py").write_text(text, "utf-8", "surrogatepass")
        command = Command(folder, ["check", *words, f"timeout={limit}"])
        code = command.wait(limit + SECONDS)
        left = command.left_behind() if code is not None else []
        command.end()
    fell = f"left behind: {left}" if left else wrong_with(code, command.text(), "--json" in words, right)
    usual = set(FILE.splitlines())
    odd = " | ".join(line.strip() for line in text.splitlines() if line not in usual)
    return fell and f"{' '.join(words)}: {fell} [{odd}]"


def wrong_with(code: int | None, text: str, as_json: bool, right: bool) -> str | None:
    if code is None:
        return "hung"
    lines = text.splitlines()
    errors = [line for line in lines if line.startswith("attn_exp: error:")]
    verdict = text[text.find("{\n") : text.rfind("\n}") + 2]
    wrong = {
        f"exit code {code}": code not in (0, 1, 2, 3),
        f"a traceback: {lines[-1:]}": "Traceback" in text,
        "it passed": code == 0 and not right,
        "it was never imported": "before it was imported" in text,
        f"{len(errors)} lines with exit code 2": (code == 2) != (len(errors) == 1),
        "no verdict": code in (0, 1) and not as_json and ": " not in text,
        "no JSON": as_json and code != 2 and not is_verdict(verdict, code),
        "an error of ours": "of attn_exp itself" in text or "in which attn_exp asks" in text,
    }
    return next((message for message, is_so in wrong.items() if is_so), None)


def is_verdict(printed: str, code: int) -> bool:
    """Say whether this is a verdict in JSON that says the same as the exit code, or why there is none."""
    try:
        verdict = json.loads(printed)
    except ValueError:
        return False
    if "uncalled" in verdict:
        return code == 3
    return bool(EXIT_CODES[verdict["outcome"]] == code and verdict["findings"])
