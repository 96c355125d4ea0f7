"""JSON files on disk, read without trust: a file that somebody else wrote may hold anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from attn_exp import machine

MOST_NUMBER = 2**63
"""Whole numbers are smaller: counts, and times in nanoseconds."""

NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    NoneType: "null",
}
Shape = Any
"""What a value must be: a type; a tuple of types, any of which will do; `[shape]`, a list of such; or `{key: shape}`,
an object with these keys and perhaps others, where a key that ends in `?` may be missing."""


class DamagedError(ValueError):
    """A file that does not hold what it should; the message says in one line what is wrong."""


def read(path: Path, shape: Shape, most: int = machine.MOST_BYTES) -> dict[str, Any]:
    """Return the object that a file holds, checked.

    Raises:
        OSError: there is no such file, or it is too large or no regular one.
        DamagedError: it holds something else.
    """
    try:
        value: dict[str, Any] = json.loads(machine.read_text(path, most))
    except RecursionError as error:
        raise DamagedError(f"{path.name} is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise DamagedError(f"{path.name} is no UTF-8 text") from error
    except ValueError as error:
        raise DamagedError(f"{path.name} is no JSON ({str(error).partition(': ')[0]})") from error
    check(value, shape, path.name)
    return value


def check(value: Any, shape: Shape, where: str) -> None:
    """Refuse a value of another shape.

    Raises:
        DamagedError: where it is, and what was expected.
    """
    if isinstance(shape, Mapping):
        check(value, dict, where)
        for name, inner in shape.items():
            key = name.removesuffix("?")
            if key in value:
                check(value[key], inner, f"{where}: {key}")
            elif key == name:
                raise DamagedError(f"{where}: {key} is missing")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise DamagedError(f"{where} is no list")
        for item in value:
            check(item, shape[0], f"an item of {where}")
    else:
        kinds = shape if isinstance(shape, tuple) else (shape,)
        if not any(fits(value, kind) for kind in kinds):
            raise DamagedError(f"{where} is not {' or '.join(NAMES[kind] for kind in kinds)}")


def fits(value: Any, kind: type) -> bool:
    """Say whether a value is of a type as JSON has it: true is no number, and a whole number is a number too."""
    if kind is int:
        return type(value) is int and abs(value) < MOST_NUMBER
    if kind is float:
        return type(value) in (int, float) and abs(value) < float("inf")
    return isinstance(value, kind)
