"""Kinds of values, written on a field as `Annotated[int, at_least(1)]`: what a setting takes, and what is refused.

Each function here returns a `Kind`. A field without one has the kind of its type: `int`, `float`, `bool`, `str`, ...
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from numbers import Integral, Real
from typing import Any, NamedTuple, NoReturn

from attn_exp.errors import UserError, brief, shown, unknown


class Kind(NamedTuple):
    """What a setting takes: `read` turns a value under its key into what the program works with, or refuses it."""

    read: Callable[[Any, str], Any]
    choices: tuple[str, ...] = ()


class Says(NamedTuple):
    """What a setting means, in the words of `--help`; `unset` says what happens where its default is empty."""

    meaning: str
    unset: str = ""


def refuse(value: Any, key: str, expected: str) -> NoReturn:
    """Say what a setting was given, and what it takes."""
    raise UserError(f"{brief(key)}={brief(shown(value))}: expected {expected}")


def is_whole(value: Any) -> bool:
    """Say whether a value is a whole number; true and false are none."""
    return not isinstance(value, bool) and isinstance(value, Integral)


def is_finite(value: Any) -> bool:
    """Say whether a value is a number that a float can hold; true and false are none."""
    try:
        return not isinstance(value, bool) and isinstance(value, Real) and isfinite(float(value))
    except OverflowError:
        return False


def accepting(fits: Callable[[Any], bool], expected: str, convert: Callable[[Any], Any] = lambda value: value) -> Kind:
    """Take the values that fit, converted; refuse the others with what was expected."""
    return Kind(lambda value, key: convert(value) if fits(value) else refuse(value, key, expected))


AS_IS = Kind(lambda value, key: value)
FLAG = accepting(lambda value: isinstance(value, bool), "true or false")
WHOLE = accepting(is_whole, "a whole number")
NUMBER = accepting(is_finite, "a finite number", float)
TEXT = accepting(lambda value: isinstance(value, str), "a word")


def written() -> Kind:
    """Take a text, whatever it looks like: a number or a switch is what was typed."""
    plain = accepting(
        lambda value: isinstance(value, str | int | float), "a text, in quotes where it has commas", shown
    )
    return Kind(plain.read)


AT_LEAST_0 = "a whole number of at least 0"
LARGEST = 2**63 - 1
"""What an index of an array can hold."""


def at_least(least: int, expected: str = "", most: int | None = LARGEST) -> Kind:
    """Take whole numbers from `least` on, up to what an array can count, or any with `most=None`."""

    def read(value: Any, key: str) -> Any:
        if not is_whole(value) or value < least:
            refuse(value, key, expected or f"a whole number of at least {least}")
        return value if most is None or value <= most else refuse(value, key, f"at most {most}")

    return Kind(read)


def any_seed() -> Kind:
    """Take whole numbers; `read` refuses those below 0 where the generator takes none."""
    return accepting(is_whole, AT_LEAST_0)


def above(bound: float) -> Kind:
    """Take finite numbers above a bound."""

    def read(value: Any, key: str) -> float:
        number: float = NUMBER.read(value, key)
        return number if number > bound else refuse(value, key, f"a number above {bound:g}")

    return Kind(read)


def between(least: float, most: float) -> Kind:
    """Take numbers from `least` to `most`."""

    def read(value: Any, key: str) -> float:
        number: float = NUMBER.read(value, key)
        return number if least <= number <= most else refuse(value, key, f"a number from {least:g} to {most:g}")

    return Kind(read)


def choice(*choices: str) -> Kind:
    """Take one of these words."""

    def read(value: Any, key: str) -> str:
        if value not in choices:
            raise UserError(unknown(shown(value), choices, key))
        return str(value)

    return Kind(read, choices)


def multiplier() -> Kind:
    """Take true, false, or a multiplier."""
    fits = accepting(
        lambda value: isinstance(value, bool) or is_finite(value), "true, false, or the multiplier as a number"
    )
    return Kind(lambda value, key: fits.read(value, key) if isinstance(value, bool) else float(fits.read(value, key)))


def file_name() -> Kind:
    """Take a name that a folder may have everywhere, or none."""
    return accepting(
        lambda value: isinstance(value, str) and bool(re.fullmatch(r"([\w][\w. -]*)?", value)),
        "a folder's name of letters, digits, dots and dashes",
    )


def folder() -> Kind:
    """Take a path that is not empty."""

    def read(value: Any, key: str) -> str:
        if not TEXT.read(value, key).strip():
            refuse("", key, "a folder, such as outputs, or . for this one")
        return str(value)

    return Kind(read)
