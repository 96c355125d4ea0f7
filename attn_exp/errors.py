"""What is said to a user: the one kind of mistake, and how words and values are shown."""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from os import PathLike
from pathlib import Path
from traceback import walk_tb
from typing import Any

UNSHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that a terminal obeys or cannot print: controls but the line's end and the tab, and turned writing."""


PLAIN = ("bool", "bytes", "dict", "float", "int", "list", "set", "str", "tuple")
"""Types whose values are shown as they are where they do not belong."""


RIGHT, WRONG, NOT_VERIFIED = "right", "wrong", "not verified"
EXIT_CODES = {RIGHT: 0, WRONG: 1, NOT_VERIFIED: 3}
"""The outcome of a check, and the exit code of the command; 2 is a usage error."""


class UserError(ValueError):
    """A mistake of the user, said in one line; the command line prints it and exits with 2."""


class UncalledError(UserError):
    """A function of the user's own that nobody knows how to call as attention."""


class WrongAttentionError(AssertionError):
    """`assert_attention` found a function that is wrong."""


class NotVerifiedError(AssertionError):
    """`assert_attention` found nothing wrong with a function, and could not verify all of it."""


class OwnCodeError(UserError):
    """A function of the user's own gave no answer: it raised an error, or its answer has another shape."""


class FaultError(UserError):
    """An error of this package itself, said in one line where code or files of others would be blamed for it."""


def fault_line(error: BaseException) -> str:
    """Return an error of our own in a line: its kind, what it says, and the last place of this package on its way."""
    places = [(path.relative_to(HERE).as_posix(), line) for path, line in way_of(error) if path.is_relative_to(HERE)]
    place = "".join(f", attn_exp/{name} line {line}" for name, line in places[-1:])
    said = words_of_error(error).strip() and f": {brief(first_line(error), 120)}"
    return f"an error of attn_exp itself: {type(error).__name__}{said}{place}"


def way_of(error: BaseException) -> list[tuple[Path, int]]:
    """Return the file and the line of each call through which an error came; the last is where it was raised."""
    return [(Path(frame.f_code.co_filename), line) for frame, line in walk_tb(error.__traceback__)]


def is_fault(error: BaseException) -> bool:
    """Say whether an error is one of this package: no line of anybody else was on its way, and it is none of a file's.

    Where memory or the depth of calls has run out, nobody knows whose it is.
    """
    known = isinstance(error, OSError | UserError | RecursionError) or out_of_memory(error) is not None
    ours = [path.is_relative_to(HERE) for path, _ in way_of(error)]
    return not known and bool(ours) and all(ours)


HERE = Path(__file__).resolve().parent
"""Where the files of this package are."""


def out_of_memory(error: BaseException) -> UserError | None:
    """Return the line that says that memory has run out, if that is what an error means; None for any other.

    Python says so in several ways: it cannot allocate, start a thread or a process, or map a file.
    """
    said = first_line(error)
    thread = isinstance(error, RuntimeError) and "start new thread" in said
    system = isinstance(error, OSError) and error.errno == errno.ENOMEM
    if not (isinstance(error, MemoryError) or thread or system):
        return None
    reason = f" ({brief(said, 100)})" if said != type(error).__name__ else ""
    return UserError(f"it does not fit into memory{reason}; {SMALLER}")


SMALLER = "choose a smaller embeddings.tokens, embeddings.d_model or head, or fewer variants at once"
"""What to change where nobody knows which setting it was."""


def unknown(word: str, choices: Sequence[str], kind: str) -> str:
    """Say that there is no such thing, and which one was perhaps meant."""
    import difflib  # noqa: PLC0415 - most runs make no mistake

    near = difflib.get_close_matches(word, choices, 1, 0.6)
    hint = f"did you mean {near[0]}? " if near else ""
    known = f"choose one of {some(choices)}" if choices else "there is none to choose"
    return f"unknown {kind} {brief(word)!r}; {hint}{known}"


def chosen(word: Any, choices: Collection[str], kind: str, of: str = "") -> str:
    """Return a name that is one of the choices, of something that has a name itself.

    Raises:
        UserError: any other, or no text at all.
    """
    kind = f"{kind} of {of}" if of else kind
    if not isinstance(word, str):
        raise UserError(f"unknown {kind} {given(word)}; choose one of {some(list(choices))}")
    if word not in choices:
        raise UserError(unknown(word, list(choices), kind))
    return word


def folder(value: Any, name: str) -> Path:
    """Return a path that was given as text or as a path.

    Raises:
        UserError: something else.
    """
    if not isinstance(value, str | PathLike) or "\0" in str(value):
        raise UserError(f"{name} is {given(value)}; expected the path of a folder")
    return Path(value)


def worded(words: Sequence[Any]) -> tuple[str, ...]:
    """Return words of a command line that came from Python.

    Raises:
        UserError: one that is no text.
    """
    for word in words:
        if not isinstance(word, str):
            raise UserError(f"got {given(word)} where a word such as 'mask=causal' was expected")
    return tuple(words)


def given(value: object) -> str:
    """Say in a few words what came where something else was expected."""
    name = type(value).__name__
    return brief(" ".join(repr(value).split())) if value is None or name in PLAIN else f"of type {name}"


def some(names: Sequence[str], most: int = 150) -> str:
    """Return as many of the names as a line has room for."""
    lengths = accumulate(len(name) + 2 for name in names)
    count = sum(length <= most for length in lengths)
    return ", ".join(names) if count == len(names) else ", ".join([*names[: max(1, count)], "..."])


def count_of(count: int, one: str, several: str = "") -> str:
    """Return a number with its word, such as `1 token` or `3 tokens`."""
    return f"{count} {one if count == 1 else several or one + 's'}"


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
    """Return the first line of what an error says, or its kind where it says nothing, or cannot even say that."""
    return next((line.strip() for line in words_of_error(error).splitlines() if line.strip()), type(error).__name__)


def words_of_error(error: BaseException) -> str:
    """Return what an error says; nothing where asking it is an error, as it may be of a class that somebody wrote."""
    try:
        return str.__str__(str(error))
    except Exception:
        return ""


def printable(text: str) -> str:
    """Return a text that a terminal shows and does not obey: control characters and half surrogate pairs as numbers."""
    return UNSHOWN.sub(lambda match: ("\\x%02x" if ord(match[0]) < 256 else "\\u%04x") % ord(match[0]), text)


def brief(text: str, most: int = 80) -> str:
    """Return a text of at most so many characters, with dots where its middle was."""
    head = (most - 3) * 2 // 3
    return text if len(text) <= most else f"{text[:head]}...{text[head + 3 - most :]}"
