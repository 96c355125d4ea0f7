"""JSON files: arrays as lists of lists, by name or one alone; tokens as a list of texts; or a vector for each word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from attn_exp import parsing
from attn_exp.errors import brief
from attn_exp.problem.files.format import MOST_TEXT, TOKENS, Entry, Format, Held, no_array


def look(path: Path, said: str) -> Held:
    """Return the arrays of the file. An object of vectors alone, `{"she": [1, 2], ...}`, is one array with tokens."""
    value = parsing.read_json(path, MOST_TEXT, once=True)
    if isinstance(value, list):
        return Held({}, tuple(value)) if are_texts(value) else Held({"": array_of_lists(value)})
    if not isinstance(value, dict):
        raise ValueError(f"it holds {brief(str(value), 40)}; expected arrays as lists of lists, by name or one alone")
    tokens = next((tuple(value.pop(name)) for name in TOKENS if are_texts(value.get(name))), None)
    arrays = {name: array_of_lists(item) for name, item in value.items() if isinstance(item, list)}
    shapes = {entry.shape for entry in arrays.values()}
    if len(arrays) > 1 and len(shapes) == 1 and len(*shapes) == 1:
        return Held(arrays | {"": array_of_lists([value[name] for name in arrays])}, tuple(arrays))
    return Held(arrays, tokens)


def are_texts(value: Any) -> bool:
    """Say whether a value is a list of texts."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def array_of_lists(value: list[Any]) -> Entry:
    """Return nested lists as an array; where they are none, asking for its numbers says why."""
    try:
        array = np.array(value)
    except ValueError:
        return no_array("it is ragged: its rows have different lengths")
    if array.dtype.kind not in "iuf":
        return no_array("it holds what is not a number, or is too large for one")
    return Entry(array.shape, str(array.dtype), array.__getitem__)


FORMAT = Format(look)
