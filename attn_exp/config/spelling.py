"""Values as a user types them on the command line, and the command that repeats a run or a sweep."""

from __future__ import annotations

import re
import shlex
from typing import Any, NamedTuple

PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
NOT_TEXT = ("true", "false", "null", "nan", "inf")


STRICT = re.compile(r"(\+{0,2})published\.strict=")
"""`strict` as a user may say it: `published` itself is a list, which has no room for a setting."""
MEMORY = re.compile(r"\+{0,2}embeddings\.memory\.")
"""A setting of the memory: that is one plain value, or none, until somebody says more of it."""


WINDOWS_PATH = re.compile(r"([A-Za-z]:[\\/]|\\\\[^\\])[^,\"\[\]{}$]*(?<!\s)")
"""The path of a file on a drive or on another machine, as Windows has it: it may hold spaces and brackets."""


def known_to_hydra(word: str) -> str:
    """Return a word of the command line as it is, or so that Hydra knows it: settings of the memory are added."""
    word = with_path_quoted(word)
    if MEMORY.match(word):
        return f"++{word.lstrip('+')}"
    return STRICT.sub(r"\1strict=", word, count=1) if STRICT.match(word) else word


def with_path_quoted(word: str) -> str:
    """Return a word whose value is a path of Windows with quotes around it: it may hold what Hydra reads as its own."""
    key, _, value = word.partition("=")
    return f"{key}={quoted(value)}" if WINDOWS_PATH.fullmatch(value) else word


def key_of(word: str) -> str:
    """Return the setting that a word of the command line is about."""
    return known_to_hydra(word).partition("=")[0].lstrip("+~")


def spelled(value: Any) -> str:
    """Write a value so that the command line reads it back as the same value of the same type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ",".join(f"{spelled(key)}:{spelled(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(spelled, value)) + "]"
    return quoted(value) if isinstance(value, str) else str(value)


def quoted(text: str) -> str:
    """Put quotes around a text that would otherwise be read as something else.

    Within quotes Hydra keeps each backslash, but for those right before a quote: of these, two stand for one.
    """
    if PLAIN.fullmatch(text) and text.lower() not in NOT_TEXT:
        return text
    return "'" + re.sub(r"(\\+)(?='|\Z)", r"\1\1", text).replace("'", "\\'") + "'"


def bare(value: Any) -> str:
    """Write a value for a reader: texts without quotes."""
    return value if isinstance(value, str) else spelled(value)


class Repeat(NamedTuple):
    """The words that chose the settings, the users' folders of YAML searched first, whether it is a sweep, and the
    files of code whose members the words may name."""

    words: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    many: bool = False
    own: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The command as it is typed in a shell."""
        options = [option for file in self.own for option in ("--with", file)]
        options += [option for folder in self.folders for option in ("--config-dir", folder)]
        return shlex.join(["python", "-m", "attn_exp", *options, *["-m"] * self.many, *self.words])
