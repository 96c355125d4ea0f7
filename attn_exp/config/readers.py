"""Readers: each turns one value that a user wrote into what the program works with, or says what was expected."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from attn_exp.config.schema import Draw
from attn_exp.errors import UserError, shown, unknown


def read_fields(values: Any, schema: type, readers: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Read each value of a mapping with the reader of its key; keys that the schema lacks are refused."""
    if not isinstance(values, Mapping):
        raise UserError(f"{path.rstrip('.')}={values}: expected settings, got a plain value")
    names = [each.name for each in fields(schema)]
    for key in values:
        if key not in names:
            raise UserError(unknown(f"{path}{key}", [f"{path}{name}" for name in names], "setting"))
    for each in fields(schema):
        if each.default is MISSING and each.default_factory is MISSING and each.name not in values:
            raise UserError(f"{path}{each.name} is missing")
    return {key: readers.get(key, as_is)(value, f"{path}{key}") for key, value in values.items()}


def as_is(value: Any, key: str) -> Any:
    return value


def whole(least: int) -> Any:
    """Return a reader of whole numbers of at least `least`."""

    def read_whole(value: Any, key: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UserError(f"{key}={shown(value)}: expected a whole number of at least {least}")
        return value

    return read_whole


def flag(value: Any, key: str) -> bool:
    if not isinstance(value, bool):
        raise UserError(f"{key}={shown(value)}: expected true or false")
    return value


def number(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UserError(f"{key}={shown(value)}: expected a finite number")
    return float(value)


def scale(value: Any, key: str) -> bool | float:
    if isinstance(value, bool):
        return value
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UserError(f"{key}={shown(value)}: expected true, false, or the multiplier as a number")
    return float(value)


def text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{key}={shown(value)}: expected a word")
    return value


def file_name(value: Any, key: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"([\w][\w. -]*)?", value):
        raise UserError(f"{key}={shown(value)}: expected a folder's name of letters, digits, dots and dashes")
    return value


def texts(value: Any, key: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise UserError(f"{key}={shown(value)}: expected a list of words, such as [a,b]")
    if any(word is None or isinstance(word, list | tuple | Mapping) for word in value):
        raise UserError(f"{key}={shown(value)}: expected a list of words, such as [a,b]")
    return tuple(shown(word) for word in value)


def words(value: Any, key: str) -> tuple[str, ...]:
    """Read one word or several; `none` is no word at all."""
    several = (value,) if isinstance(value, str) else () if value is None else texts(value, key)
    return tuple(word for word in several if word != "none")


def choice(*choices: str) -> Any:
    """Return a reader of one of these words."""

    def read_choice(value: Any, key: str) -> str:
        if value not in choices:
            raise UserError(unknown(shown(value), choices, key))
        return str(value)

    return read_choice


def words_of(*choices: str) -> Any:
    """Return a reader of one of these words, or of a list of them; each counts once."""
    read_choice = choice(*choices)

    def read_words(value: Any, key: str) -> tuple[str, ...]:
        words = [value] if isinstance(value, str) else texts(value, key)
        if not words:
            raise UserError(f"{key}=[]: expected at least one of {', '.join(choices)}")
        return tuple(dict.fromkeys(read_choice(word, key) for word in words))

    return read_words


def between(least: float, most: float) -> Any:
    """Return a reader of numbers from `least` to `most`."""

    def read_between(value: Any, key: str) -> float:
        found = number(value, key)
        if not least <= found <= most:
            raise UserError(f"{key}={shown(value)}: expected a number from {least:g} to {most:g}")
        return found

    return read_between


def optional(reader: Any) -> Any:
    """Return a reader that lets None through."""
    return lambda value, key: None if value is None else reader(value, key)


def named(schema: type, readers: Mapping[str, Any]) -> Any:
    """Return a reader of a mapping of names to settings."""

    def read_named(value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise UserError(f"{key}={shown(value)}: expected a name and its settings")
        return {
            str(name): schema(**read_fields(each, schema, readers, f"{key}.{name}.")) for name, each in value.items()
        }

    return read_named


def section(schema: type, readers: Mapping[str, Any]) -> Any:
    """Return a reader of one group of settings."""
    return lambda value, key: schema(**read_fields(value, schema, readers, f"{key}."))


def mapping_of(readers: Mapping[str, Any]) -> Any:
    """Return a reader of a mapping that knows these keys only."""

    def read_mapping(value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise UserError(f"{key}={shown(value)}: expected a mapping of {', '.join(readers)}")
        for name in value:
            if name not in readers:
                raise UserError(unknown(f"{key}.{name}", [f"{key}.{known}" for known in readers], "setting"))
        return {name: readers[name](each, f"{key}.{name}") for name, each in value.items()}

    return read_mapping


def each_of(reader: Any) -> Any:
    """Return a reader of a list, each item read by `reader`."""
    return lambda value, key: tuple(reader(item, f"{key}[{place}]") for place, item in enumerate(value or ()))


def mapping(value: Any, key: str) -> dict[str, Any]:
    """Read a mapping of names to settings; the registries check both."""
    if not isinstance(value, Mapping):
        raise UserError(f"{key}={shown(value)}: expected a name and its settings")
    return {str(name): {} if settings is None else settings for name, settings in value.items()}


def tokens(value: Any, key: str) -> tuple[str, ...] | int:
    if isinstance(value, bool | float):
        raise UserError(f"{key}={shown(value)}: expected a list of names, or how many")
    return whole(1)(value, key) if isinstance(value, int) else texts(value, key)


def folder(value: Any, key: str) -> str:
    if not text(value, key).strip():
        raise UserError(f"{key}=: expected a folder, such as outputs, or . for this one")
    return str(value)


def array_or_draw(value: Any, key: str) -> Any:
    """Read numbers as they are, or a mapping as a `Draw` of a matrix."""
    if not isinstance(value, Mapping):
        return value
    readers = {"distribution": choice("normal", "uniform"), "legacy_seed": whole(0), "shape": each_of(whole(1))}
    drawn = Draw(**read_fields(value, Draw, readers, f"{key}."))
    if len(drawn.shape) != 2:
        raise UserError(f"{key}.shape={list(drawn.shape)}: expected rows and columns, such as [3,4]")
    return drawn
