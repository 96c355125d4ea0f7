"""What the tests of a child ask in it; apart from them, so that it starts without pytest."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any

from attn_exp.errors import UserError

Tell = Callable[[str], None]


def echo(argument: Any, tell: Tell) -> Any:
    tell("thinking")
    return [argument, sys.argv[0], os.getpid()]


def prints() -> str:
    print("printed")
    os.write(1, b"written\n")
    sys.stdout.buffer.write(b'{"answer": "forged"}\n')
    return sys.stdin.read()


def refuses() -> None:
    raise UserError("such words are refused")


DEEDS = {
    "": lambda: "an answer",
    "exit": lambda: os._exit(3),
    "leave": lambda: sys.exit(0),
    "crash": lambda: ctypes.string_at(0),
    "give up": os.abort,
    "wait": lambda: time.sleep(600),
    "hold on": lambda: re.match(r"(a+)+$", "a" * 60 + "b"),  # one call, which no other thread can interrupt
    "refuse": refuses,
    "print": prints,
    "unwritten": object,
}


def behave(argument: str, tell: Tell) -> Any:
    """Do in the child what the argument says."""
    if argument.startswith("begin and "):
        tell("begun")
    return DEEDS[argument.removeprefix("begin and ")]()
