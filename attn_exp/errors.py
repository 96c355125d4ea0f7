"""Errors for users, exit codes, and functions that format names and values in messages."""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any

UNSHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except newline and tab, bidirectional overrides, and unpaired surrogates."""


PLAIN = ("bool", "bytes", "dict", "float", "int", "list", "set", "str", "tuple")
"""Types whose values are shown literally in messages."""


RIGHT, WRONG, NOT_VERIFIED = "right", "wrong", "not verified"
EXIT_CODES = {RIGHT: 0, WRONG: 1, NOT_VERIFIED: 3}
"""The exit code of `attn-exp check` for each outcome; 2 is a usage error."""


class UserError(ValueError):
    """A user error, described in one line; the command line prints it and exits with code 2."""


class UncalledError(UserError):
    """A user's function could not be called: its signature is not recognised as attention."""


class WrongAttentionError(AssertionError):
    """`assert_attention` found that a function is wrong."""


class NotVerifiedError(AssertionError):
    """`assert_attention` found nothing wrong with a function, but could not verify all of it."""


class OwnCodeError(UserError):
    """A user's function returned no usable result: it raised an error, or its output has the wrong shape."""


class FaultError(UserError):
    """An internal error of this package, raised so that user code or files are not blamed for it."""


def fault_line(error: BaseException) -> str:
    """Describe an internal error in one line: its kind, its message, and the innermost line of this package."""
    lines = [f", {path.name} line {line}" for path, line in list_frames(error) if path.is_relative_to(HERE)]
    return f"internal error of attn_exp: {type(error).__name__}: {brief(first_line(error), 120)}{''.join(lines[-1:])}"


def list_frames(error: BaseException) -> list[tuple[Path, int]]:
    return [(Path(frame.f_code.co_filename), line) for frame, line in walk_tb(error.__traceback__)]


def is_fault(error: BaseException) -> bool:
    """Return whether an error is internal. It is if every frame of its traceback is in this package."""
    return all(path.is_relative_to(HERE) for path, _ in list_frames(error))


HERE = Path(__file__).resolve().parent


def out_of_memory(error: BaseException) -> UserError | None:
    """Return a UserError if an error means that memory has run out, else None.

    Python reports this in several ways: it cannot allocate, start a thread or a process, or map a file.
    """
    line = first_line(error)
    is_thread = isinstance(error, RuntimeError) and "start new thread" in line
    is_system = isinstance(error, OSError) and error.errno == errno.ENOMEM
    message = f"it does not fit into memory ({brief(line, 100)}); {SMALLER}"
    return UserError(message) if isinstance(error, MemoryError) or is_thread or is_system else None


SMALLER = "choose a smaller embeddings.tokens, embeddings.d_model or head, or fewer variants at once"
"""Advice for when memory runs out; it is unknown which setting needs too much."""


def unknown(word: str, choices: Sequence[str], kind: str) -> str:
    import difflib  # noqa: PLC0415 - most runs make no mistake

    matches = difflib.get_close_matches(word, choices, 1, 0.6)
    hint = f"did you mean {matches[0]}? " if matches else ""
    advice = f"choose one of {some(choices)}" if choices else "there are no choices"
    return f"unknown {kind} {brief(word)!r}; {hint}{advice}"


def chosen(word: Any, choices: Collection[str], kind: str) -> str:
    """Return `word` if it is one of the choices; `kind` is what the error message calls it, such as `mask`.

    Raises:
        UserError: `word` is not one of the choices, or not a string.
    """
    if not isinstance(word, str) or word not in choices:
        raise UserError(unknown(str(word), list(choices), kind))
    return word


def given(value: object) -> str:
    """Describe a value that a user passed: a plain value literally, any other by its type, as in `of type Tensor`."""
    name = type(value).__name__
    return brief(" ".join(repr(value).split())) if value is None or name in PLAIN else f"of type {name}"


def some(names: Sequence[str], most: int = 150) -> str:
    """Join names with commas, up to `most` characters; " ..." replaces the names that do not fit."""
    import textwrap  # noqa: PLC0415 - most runs make no mistake

    return textwrap.shorten(", ".join(names), most, placeholder=" ...", break_on_hyphens=False)


def count_of(count: int, one: str, several: str = "") -> str:
    """Return a count with its noun: `count_of(2, "point") -> "2 points"`."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def shown(value: Any) -> str:
    """Format a value as the user would have typed it."""
    if value is None or isinstance(value, bool):
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, list | tuple):
        return f"[{','.join(map(shown, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{name}:{shown(item)}' for name, item in value.items())}}}"
    return str(value)


@contextmanager
def refuse(what: str, *kinds: type[Exception]) -> Iterator[None]:
    """Convert exceptions of these types to a UserError with the message `what` and, in parentheses, the reason.

    Raises:
        UserError: the block raised such an exception.
    """
    try:
        yield
    except kinds as error:
        raise UserError(f"{what} ({reason(error)})") from error


def reason(error: Exception) -> str:
    return error.strerror or first_line(error) if isinstance(error, OSError) else first_line(error)


def first_line(error: BaseException) -> str:
    """Return the first non-empty line of an error's message, or its type if the message is empty."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def printable(text: str) -> str:
    """Escape control characters and unpaired surrogates, so that a terminal displays them instead of obeying them."""
    return UNSHOWN.sub(lambda match: ("\\x%02x" if ord(match[0]) < 256 else "\\u%04x") % ord(match[0]), text)


def brief(text: str, most: int = 80) -> str:
    """Shorten a string to at most `most` characters, replacing its middle with three dots."""
    kept = (most - 3) * 2 // 3
    return text if len(text) <= most else f"{text[:kept]}...{text[kept + 3 - most :]}"
