"""Sizes and counts as nobody means them, in a process with little memory: refused in a line, done, or said to be long.

What takes longer than ten seconds must have said so by then, and must end soon after Ctrl-C, with a line. Nothing ends
by a signal, nor in a traceback.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tools.fuzz._processes import Command

SECONDS, DEAF = 10.0, 6.0
"""Seconds without a word, and from Ctrl-C to the end; twice what is promised, as other work may share the machine."""

GIB = 2**30
CODES = (0, 1, 2, 3, 130)
"""3: a check that could not finish, as with too little memory."""

MINE = """
import numpy as np
def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
def layer(x, W_q, W_k, W_v, W_o, heads=2):
    return x @ W_v @ W_o
"""

Chance = random.Random


def size(chance: Chance) -> str:
    kind = chance.random()
    if kind < 0.75:
        return str(chance.choice((1, 2, 3, 5, 7, 8)) * 10 ** chance.choice((0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 9, 12)))
    if kind < 0.85:
        return str(chance.choice((0, -1, 2**31, 2**32 + 1, 2**63 - 1, 2**63, 10**30)))
    odd = ("1e3", "1e400", "-1e400", "nan", "inf", "0x10", "1_000", "1.5", "true", "null", "''", "[3]", "[]", "{a:1}")
    return chance.choice((*odd, "9" * 4000, "9" * 5000, "1/2", "10**9", "abc", "१०", "1,2", " 3"))


def settings(chance: Chance) -> list[str]:
    """Return words with sizes."""
    of_size = (
        "embeddings.tokens", "embeddings.d_model", "head", "kv_head", "past", "seed", "embeddings.memory.tokens",
        "embeddings.memory.d_model", "projections.width", "projections.key_width", "projections.value_width",
        "projections.output_width", "mask.window.left", "mask.window.right", "mask.prefix.length", "scale",
        "projections.spread", "embeddings.low", "score.softcap.cap",
    )  # fmt: skip
    needs = {"mask.window": "mask=window", "mask.prefix": "mask=prefix", "score.softcap": "score=softcap"}
    chosen = chance.sample(of_size, chance.choice((1, 1, 1, 2, 3)))
    words = ["embeddings=random"]
    words += [word for start, word in needs.items() if any(key.startswith(start) for key in chosen)]
    words += [f"{'++' * (key.count('.') > 1)}{key}={size(chance)}" for key in chosen]
    if chance.random() < 0.6:
        forms = ("matrix", "looped", "blockwise", "multi_head", "linear", "decode", "linear_recurrent")
        words.append(f"variant=[{','.join(chance.sample(forms, chance.choice((1, 1, 2))))}]")
    if chance.random() < 0.2:
        words.append(chance.choice(("check=all", "metrics=all", "dtype=[float32]", "weights=full", "weights=blocks")))
    return [*words, *chance.choice(([], ["report=none"], ["report=none"]))]


def run(chance: Chance) -> list[str]:
    return settings(chance)


def sweep(chance: Chance) -> list[str]:
    key = chance.choice(("embeddings.tokens", "embeddings.d_model", "seed", "head", "past"))
    values = chance.choice(
        (f"range(0,{size(chance)})", ",".join(size(chance) for _ in range(chance.choice((2, 5, 40)))))
    )
    engine = chance.choice(("serial", "process"))
    return ["-m", *settings(chance), f"{key}={values}", f"sweep.engine={engine}", "sweep.name=s"]


def check(chance: Chance) -> list[str]:
    keys = chance.sample(("head", "kv_head", "seed", "scale"), chance.choice((1, 2)))
    function = chance.choice(("attention", "layer"))
    return [
        "check",
        f"mine.py:{function}",
        *(f"{key}={size(chance)}" for key in keys),
        *chance.choice(([], ["--quick"])),
    ]


def sheet(chance: Chance) -> list[str]:
    own = chance.choice(("digits", "seed", "head", "transposed", "stages"))
    return ["sheet", *settings(chance), f"{own}={size(chance)}"]


def explain(chance: Chance) -> list[str]:
    answer = chance.choice(("[[1]]", "[[0.5,0.5],[0.5,0.5]]", size(chance)))
    return ["explain", *settings(chance), f"answer.{chance.choice(('weights', 'output', 'q'))}={answer}"]


COMMANDS: list[Callable[[Chance], list[str]]] = [run, run, run, sweep, check, sheet, explain]


def attempt(seed: int) -> str | None:
    """Give a command odd sizes and little memory, and return what fell."""
    chance = random.Random(seed)
    words = chance.choice(COMMANDS)(chance)
    limit = int(chance.choice((1, 1.5, 2, 3, 4)) * GIB)
    with tempfile.TemporaryDirectory(prefix="sizes-") as name:
        here = Path(name)
        (here / "mine.py").write_text(MINE)
        fell = tried(here, words, limit)
    shown = " ".join(word if len(word) < 60 else f"{word[:40]}...({len(word)})" for word in words)
    return fell and f"{limit / GIB:g} GiB, {shown}: {fell}"


def tried(here: Path, words: list[str], limit: int) -> str | None:
    """Try a command with so much memory, and return what is wrong with how it ended."""
    command = Command(here, words, before=lambda: narrow(limit))
    code, told = command.wait(SECONDS), ""
    if code is None:
        told = command.text()
        os.kill(command.child, signal.SIGINT)
        code = command.wait(DEAF)
    command.end()
    if code is None:
        return f"deaf to Ctrl-C for {DEAF:.0f} s: {last(told)}"
    text = command.text()
    errors = [line for line in text.splitlines() if line.startswith("attn_exp: error: ")]
    wrong = {
        f"a traceback: {last(text)}": "Traceback" in text,
        f"exit code {code}: {last(text)}": code not in CODES,
        f"{SECONDS:.0f} s without a word": code == 130 and not told.strip(),
        "ended by Ctrl-C without a line": code == 130
        and "interrupted" not in text
        and "interrupted before it was finished" not in text,
        f"{len(errors)} errors: {last(text)}": code == 2 and len(errors) != 1,
        "nothing was said": code in (1, 3) and not text.strip(),
    }
    return next((message for message, is_so in wrong.items() if is_so), None)


def narrow(limit: int) -> None:
    """Let this process have so much memory, and numbers as long as in a new one."""
    sys.set_int_max_str_digits(4300)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def last(text: str) -> str:
    return (text.strip().splitlines() or ["nothing"])[-1][:200]
