"""What a file format is: a way to list the arrays of a file before reading any of their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from attn_exp import machine
from attn_exp.arrays import Array, Shape

MOST_BYTES = 2**31
"""The largest array that is read."""

MOST_TEXT = 256 * 2**20
"""The largest text file that is read."""

TOKENS = ("tokens", "words", "names", "labels")
"""The possible names of the tokens in a file of several arrays."""


class Entry(NamedTuple):
    """One array of a file: its shape, the name of its dtype, and how to read it.

    `read` takes an index, as an array does: `...` reads all of it, `[2, 0]` two of its rows.
    """

    shape: Shape
    dtype: str
    read: Callable[[Any], Array]


class Held(NamedTuple):
    """The contents of a file: arrays by name, `""` for one without, and the names of tokens beside them."""

    arrays: Mapping[str, Entry]
    tokens: tuple[str, ...] | None = None


def no_array(reason: str) -> Entry:

    def refuse(index: Any) -> Array:
        raise ValueError(reason)

    return Entry((), "something that is not an array", refuse)


def size_of(file: IO[bytes]) -> int:
    size = file.seek(0, 2)
    file.seek(0)
    return size


def read_text(path: Path) -> str:
    """Read a UTF-8 or UTF-16 text file, without its byte order mark."""
    return machine.decoded(machine.read(path, MOST_TEXT)).removeprefix("\ufeff")


@dataclass(frozen=True)
class Format:
    """A file format; a file of this folder named after the suffix holds one, as `FORMAT`.

    If a file holds several, they are in `FORMATS` by suffix.

    - `look`: lists the contents of a file, and reads no more than that takes. It gets the file, and the setting that
    named it, with which errors begin. Any other error, such as a ValueError, becomes one line about the file.
    """

    look: Callable[[Path, str], Held]
