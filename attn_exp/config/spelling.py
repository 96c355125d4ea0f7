"""Format values as a user would type them, replace large arrays with names, and format the command to repeat a run."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from attn_exp.arrays import Array

PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")  # text that needs no quotes
NOT_TEXT = ("true", "false", "null", "nan", "inf")  # words that would be read as a value of another type


STRICT = re.compile(r"(\+{0,2})published\.strict=")
"""`published.strict`, another spelling of `strict`: Hydra could not set it, since `published` is a list."""
MEMORY = re.compile(r"\+{0,2}embeddings\.memory\.")
"""An argument that sets one key of the memory; the memory may still be null, so Hydra needs the prefix `++`."""


WINDOWS_PATH = re.compile(r"([A-Za-z]:[\\/]|\\\\[^\\])[^,\"\[\]{}$]*(?<!\s)")
"""A Windows path with a drive letter or a UNC path; it may contain spaces and brackets."""


def quote_for_hydra(word: str) -> str:
    """Rewrite an argument that Hydra could not read as typed.

    A Windows path gets quotes, a key of the memory gets `++`, and `published.strict` becomes `strict`.
    """
    word = quote_windows_path(word)
    if MEMORY.match(word):
        return f"++{word.lstrip('+')}"
    return STRICT.sub(r"\1strict=", word, count=1) if STRICT.match(word) else word


def quote_windows_path(word: str) -> str:
    """Quote the value of an argument if it is a Windows path, which Hydra's grammar could not parse."""
    key, _, value = word.partition("=")
    return f"{key}={quoted(value)}" if WINDOWS_PATH.fullmatch(value) else word


def key_of(word: str) -> str:
    """Return the setting that an argument changes: `+mask.window.left=2 -> mask.window.left`."""
    return quote_for_hydra(word).partition("=")[0].lstrip("+~")


def spelled(value: Any) -> str:
    """Format a value so that the command line reads it back with the same type: `["a b", None] -> ['a b',null]`."""
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
    """Quote a string if it would otherwise be parsed as something else: `a b -> 'a b'`, but `ab -> ab`.

    Inside quotes, Hydra keeps backslashes as they are, except directly before a quote: there, two stand for one.
    """
    if PLAIN.fullmatch(text) and text.lower() not in NOT_TEXT:
        return text
    return "'" + re.sub(r"(\\+)(?='|\Z)", r"\1\1", text).replace("'", "\\'") + "'"


def bare(value: Any) -> str:
    """Format a value like `spelled`, but leave a string without quotes: `a b -> a b`."""
    return value if isinstance(value, str) else spelled(value)


class Repeat(NamedTuple):
    """How to repeat a command.

    - `words`: its arguments. `folders`: the user's own config folders.
    - `many`: whether it is a sweep.
    - `own`: the `--with` files, whose members the arguments may name.
    """

    words: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    many: bool = False
    own: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        options = [option for file in self.own for option in ("--with", file)]
        options += [option for folder in self.folders for option in ("--config-dir", folder)]
        return shlex.join(["python", "-m", "attn_exp", *options, *["-m"] * self.many, *self.words])


# Large arrays among settings, and the names that replace them while Hydra composes

MOST_NUMBERS = 1000
"""A list of more numbers than this is a large array, and a name with its hash replaces it."""

MARK = "array"  # the beginning of such a name: `array:<hash>`


def array_name(array: Array) -> str:
    """Return a unique name for an array: a hash of its dtype, shape and numbers."""
    return hashlib.sha256(f"{array.dtype.str} {array.shape}".encode() + array.tobytes()).hexdigest()[:32]


def as_numbers(value: Any) -> Array | None:
    """Convert an array or nested lists of more than `MOST_NUMBERS` numbers to an array; None for anything else."""
    is_list = isinstance(value, list | tuple)
    if (is_list and count_numbers(value) <= MOST_NUMBERS) or not (is_list or hasattr(value, "shape")):
        return None
    import numpy as np  # noqa: PLC0415 - few settings hold a large array; `--cfg` needs no NumPy otherwise

    if not is_list:
        return value if isinstance(value, np.ndarray) and value.size > MOST_NUMBERS else None
    try:
        array = np.array(value)
    except (ValueError, OverflowError):  # rows of unequal lengths, or a number too large for an array
        return None
    return array if array.dtype.kind in "iuf" else None


def count_numbers(value: Any) -> int:
    """Estimate how many numbers nested lists hold, from the first item at each level."""
    if not isinstance(value, list | tuple):
        return 1
    return len(value) * count_numbers(value[0]) if value else 0


def array_reference(name: str) -> str:
    return f"{MARK}:{name}"


def extract_arrays(value: Any, arrays: dict[str, Any]) -> Any:
    """Return plain values with each large list of numbers replaced by a name; add the lists to `arrays` by name."""
    if isinstance(value, Mapping):
        return {key: extract_arrays(item, arrays) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    array = as_numbers(value)
    if array is None:
        return [extract_arrays(item, arrays) for item in value]
    name = array_reference(array_name(array))
    arrays[name] = value
    return name


def restore_arrays(value: Any, arrays: Mapping[str, Any]) -> Any:
    """Return plain values with the lists of `arrays` in place of their names: the opposite of `extract_arrays`."""
    if isinstance(value, Mapping):
        return {key: restore_arrays(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [restore_arrays(item, arrays) for item in value]
    return arrays.get(value, value) if isinstance(value, str) else value
