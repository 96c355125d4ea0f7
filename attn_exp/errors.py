"""What is said to a user: the one kind of mistake, and how words and values are shown."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any


class UserError(ValueError):
    """A mistake of the user, told in one line; the command line prints it and exits with 2."""


def unknown(word: str, choices: Sequence[str], kind: str) -> str:
    """Say that there is no such thing, and which one was perhaps meant."""
    near = difflib.get_close_matches(word, choices, 1, 0.6)
    hint = f"did you mean {near[0]}? " if near else ""
    known = f"choose one of {', '.join(choices)}" if choices else "there is none to choose"
    return f"unknown {kind} {word!r}; {hint}{known}"


def shown(value: Any) -> str:
    """Write a value as the user would have typed it."""
    if value is None or isinstance(value, bool):
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, list | tuple):
        return f"[{','.join(map(shown, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{name}:{shown(each)}' for name, each in value.items())}}}"
    return str(value)
