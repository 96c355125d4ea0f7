"""What a format of files is: a way to see which arrays a file holds, before any number of it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from attn_exp import machine
from attn_exp.arrays import Array

MOST_BYTES = 2**31
"""The largest array that is read."""

MOST_TEXT = 256 * 2**20
"""The largest file of text that is read."""

TOKENS = ("tokens", "words", "names", "labels")
"""Names under which the tokens of a file of several arrays lie."""


class Entry(NamedTuple):
    """One array of a file: its shape, the type of its numbers in words, and how to read it.

    `read` takes an index, as an array does: `...` reads all of it, `[2, 0]` two of its rows.
    """

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[Any], Array]


class Held(NamedTuple):
    """What a file holds: arrays by their names, `""` where one has none, and the names of tokens beside them."""

    arrays: Mapping[str, Entry]
    tokens: tuple[str, ...] | None = None


def no_array(reason: str) -> Entry:
    """Return what stands in a file where an array should; asking for its numbers says why it is none."""

    def refuse(index: Any) -> Array:
        raise ValueError(reason)

    return Entry((), "what is no array", refuse)


def size_of(file: IO[bytes]) -> int:
    """Return how many bytes a file has, and go back to its beginning."""
    size = file.seek(0, 2)
    file.seek(0)
    return size


def read_text(path: Path) -> str:
    """Return a file of text, UTF-8 or UTF-16, without the mark that some programs begin one with."""
    return machine.decoded(machine.read(path, MOST_TEXT)).removeprefix("\ufeff")


@dataclass(frozen=True)
class Format:
    """A format of files; a file of this folder that is named as its suffix holds one, as `FORMAT`.

    Where a file holds several, they stand by their suffixes in `FORMATS`.

    - `look`: returns what a file holds, and reads no more of it than that takes. It is given the file, and the setting
      that named it, with which errors begin. Any other error, such as a ValueError, becomes one line about the file.
    """

    look: Callable[[Path, str], Held]
