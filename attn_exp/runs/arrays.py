"""Arrays of a run's settings, kept by hash: settings name the large ones, the run's arrays hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.large import MARK, as_numbers, name_of, stored

LONGEST_WORD = 2000
"""A word of more characters names its array, if it holds one."""


def settings(value: Any, arrays: dict[str, Array]) -> Any:
    """Return settings as plain values; large arrays go to `arrays` and leave `{"array": name}`."""
    if is_dataclass(value):
        return {field.name: settings(getattr(value, field.name), arrays) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: settings(item, arrays) for key, item in value.items()}
    if not isinstance(value, list | tuple | np.ndarray):
        return value
    array = as_numbers(value)
    if array is None:
        return value.tolist() if isinstance(value, np.ndarray) else [settings(item, arrays) for item in value]
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
