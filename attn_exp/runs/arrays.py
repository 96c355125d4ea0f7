"""Arrays of a run's settings, kept by hash: settings name the large ones, the run's arrays hold them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MOST_NUMBERS = 1000
"""Lists of more numbers are named by their hash."""

LONGEST_WORD = 2000
"""A word of more characters names its array, if it holds one."""

MARK = "array"


def name_of(array: Array) -> str:
    """Return what tells an array from all others: a hash of its type, its shape and its numbers."""
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def as_numbers(value: Any) -> Array | None:
    """Return nested lists of more than `MOST_NUMBERS` numbers as an array; None for anything else."""
    if count(value) <= MOST_NUMBERS:
        return None
    try:
        array = np.array(value)
    except ValueError:  # rows of unequal lengths
        return None
    return array if array.dtype.kind in "iuf" else None


def count(value: Any) -> int:
    """Return how many numbers nested lists hold, as far as the first of each tells."""
    if not isinstance(value, list | tuple):
        return 1
    return len(value) * count(value[0]) if value else 0


def settings(value: Any, arrays: dict[str, Array]) -> Any:
    """Return settings as plain values; large arrays go to `arrays` and leave `{"array": name}`."""
    if is_dataclass(value):
        return {field.name: settings(getattr(value, field.name), arrays) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: settings(item, arrays) for key, item in value.items()}
    if not isinstance(value, list | tuple):
        return value
    array = as_numbers(value)
    if array is None:
        return [settings(item, arrays) for item in value]
    name = name_of(array)
    arrays[name] = array
    return {MARK: name}


def put_back(value: Any, arrays: Mapping[str, Array]) -> Any:
    """Return settings with every named array in its place.

    Raises:
        KeyError: an array that is not there.
    """
    if isinstance(value, Mapping):
        if set(value) == {MARK} and isinstance(value[MARK], str):
            return arrays[stored(value[MARK])].tolist()
        return {key: put_back(item, arrays) for key, item in value.items()}
    return [put_back(item, arrays) for item in value] if isinstance(value, list) else value


def are_named(value: Any) -> bool:
    """Say whether settings name an array that lies elsewhere."""
    if isinstance(value, Mapping):
        return set(value) == {MARK} or any(map(are_named, value.values()))
    return isinstance(value, list) and any(map(are_named, value))


def stored(name: str) -> str:
    """Return the name under which an array lies among those of a run."""
    return f"{MARK}:{name}"


def shortened(words: Sequence[str], plain: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words of a command in which the longest name their array, as in `key=array:...`."""
    return tuple(word if len(word) <= LONGEST_WORD else short(word, plain) for word in words)


def short(word: str, plain: Mapping[str, Any]) -> str:
    """Return one word with the name of its array for a value; a word that holds none stays."""
    key = word.partition("=")[0]
    place: Any = plain
    for part in key.lstrip("+").split("."):
        place = place.get(part) if isinstance(place, Mapping) else None
    if isinstance(place, Mapping) and set(place) == {MARK}:
        return f"{key}={stored(place[MARK])}"
    return word
