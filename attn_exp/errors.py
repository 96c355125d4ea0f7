"""What is said to a user: the one kind of mistake, and how words and values are shown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

UNSHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that a terminal obeys or cannot print: controls but the line's end and the tab, and turned writing."""


class UserError(ValueError):
    """A mistake of the user, said in one line; the command line prints it and exits with 2."""


class OwnCodeError(UserError):
    """A function of the user's own gave no answer: it raised an error, or its answer has another shape."""


def unknown(word: str, choices: Sequence[str], kind: str) -> str:
    """Say that there is no such thing, and which one was perhaps meant."""
    import difflib  # noqa: PLC0415 - most runs make no mistake

    near = difflib.get_close_matches(word, choices, 1, 0.6)
    hint = f"did you mean {near[0]}? " if near else ""
    known = f"choose one of {some(choices)}" if choices else "there is none to choose"
    return f"unknown {kind} {brief(word)!r}; {hint}{known}"


def some(names: Sequence[str], most: int = 150) -> str:
    """Return as many of the names as a line has room for."""
    lengths = accumulate(len(name) + 2 for name in names)
    count = sum(length <= most for length in lengths)
    return ", ".join(names) if count == len(names) else ", ".join([*names[: max(1, count)], "..."])


def shown(value: Any) -> str:
    """Write a value as the user would have typed it."""
    if value is None or isinstance(value, bool):
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, list | tuple):
        return f"[{','.join(map(shown, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{name}:{shown(item)}' for name, item in value.items())}}}"
    return str(value)


def reason(error: Exception) -> str:
    """Return in a few words why something failed: what the system says of a file, or the first line of the error."""
    return error.strerror or first_line(error) if isinstance(error, OSError) else first_line(error)


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, or its kind where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def printable(text: str) -> str:
    """Return a text that a terminal shows and does not obey: control characters and half surrogate pairs as numbers."""
    return UNSHOWN.sub(lambda match: escaped(match[0]), text)


def escaped(character: str) -> str:
    """Return a character as its number."""
    return f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"


def brief(text: str, most: int = 80) -> str:
    """Return a text of at most so many characters, with dots where its middle was."""
    head = (most - 3) * 2 // 3
    return text if len(text) <= most else f"{text[:head]}...{text[head + 3 - most :]}"
