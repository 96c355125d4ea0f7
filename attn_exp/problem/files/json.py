"""JSON files: arrays as lists of lists, by name or one alone; tokens as a list of texts; or a vector for each word."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attn_exp import parsing
from attn_exp.errors import brief
from attn_exp.problem.files.format import MOST_TEXT, TOKENS, Entry, Format, Held, no_array

MOST_NAMES = 1_000_000
"""As many words as the largest files of word vectors have."""


def look(path: Path, said: str) -> Held:
    """Return the arrays of the file. An object of vectors alone, `{"she": [1, 2], ...}`, is one array with tokens."""
    value = parsing.read_json(path, MOST_TEXT, once=True)
    if isinstance(value, list):
        return Held({}, texts(value)) if texts(value) else Held({"": array_of_lists(value)})
    if not isinstance(value, Mapping):
        raise ValueError(f"it holds {brief(str(value), 40)}; expected arrays as lists of lists, by name or one alone")
    named = next((name for name in TOKENS if texts(value.get(name))), None)
    tokens = None if named is None else texts(value[named])
    if len(value) > MOST_NAMES:
        raise ValueError(f"it names {len(value):,} arrays; at most {MOST_NAMES:,} are read")
    arrays = {name: array_of_lists(item) for name, item in value.items() if isinstance(item, list) and name != named}
    if len(arrays) > 1 and len({entry.shape for entry in arrays.values() if len(entry.shape) == 1}) == 1:
        vectors = [item for name, item in value.items() if name in arrays]
        if all(len(entry.shape) == 1 for entry in arrays.values()):
            return Held(arrays | {"": array_of_lists(vectors)}, tuple(arrays))
    return Held(arrays, tokens)


def texts(value: Any) -> tuple[str, ...] | None:
    """Return a list of texts; None for anything else."""
    right = isinstance(value, list) and value and all(isinstance(item, str) for item in value)
    return tuple(value) if right else None


def array_of_lists(value: list[Any]) -> Entry:
    """Return nested lists as an array; where they are none, asking for its numbers says why."""
    reason = fault(value)
    array = None if reason else np.array(value)
    if array is not None and array.dtype.kind in "iuf":
        return Entry(array.shape, str(array.dtype), lambda: array)
    return no_array(reason or "a number is too large, or is no number")


def fault(value: list[Any], depth: int = 4) -> str:
    """Return what keeps nested lists from being an array of numbers; nothing where they are one."""
    if not depth:
        return "lists nest too deeply for an array"
    kinds = set(map(type, value))
    if list not in kinds:
        if kinds <= {int, float}:
            return ""
        wrong = next(item for item in value if type(item) not in (int, float))
        return f"it holds {brief(json.dumps(wrong), 40)}, which is not a number"
    if kinds != {list}:
        return "it mixes lists and numbers"
    widths = sorted({len(item) for item in value})
    if len(widths) > 1:
        return f"it is ragged: rows of {brief(', '.join(map(str, widths)))} numbers"
    return next((reason for item in value if (reason := fault(item, depth - 1))), "")


FORMAT = Format(look)
