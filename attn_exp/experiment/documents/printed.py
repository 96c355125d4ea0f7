"""Numbers as documents print them: what they say, and how exactly they say it."""

from __future__ import annotations

import re

import numpy as np

from attn_exp.arrays import Array

NUMBER = re.compile(r"[-+\u2212]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+\u2212]?\d+)?")
"""A decimal number, its minus a hyphen or the typographer's."""


def read(text: str, digits: int | None = None) -> tuple[Array, Array]:
    """Return the numbers of a printed text in reading order, and half a unit of each one's last digit.

    NumPy writes a whole array with as many decimals as its longest number needs and leaves trailing zeros off, so the
    numbers share their decimals: 0.16 beside 0.309 means 0.160. A number with an exponent counts its own:
    1.24e-13 is exact to 0.005e-13. `digits` says how many decimals are meant where every number lost zeros.
    """
    words = [word.replace("\u2212", "-") for word in NUMBER.findall(text)]
    plain = shared(words) if digits is None else digits
    lasts = [plain if power is None else decimals(word) - power for word in words for power in [exponent(word)]]
    return np.array([float(word) for word in words]), np.array([float(f"0.5e{-last}") for last in lasts])


def rewritten(text: str, values: Array, digits: int | None = None) -> str:
    """Write other numbers into the brackets of a printed text, to as many decimals, and at least `digits`."""
    places = max(shared(NUMBER.findall(text)), digits or 0)
    rest = iter(values.tolist())

    def write(match: re.Match[str]) -> str:
        word = match.group()
        return format(next(rest), f".{places}f" if exponent(word) is None else f".{decimals(word)}e")

    return NUMBER.sub(write, text)


def shared(words: list[str]) -> int:
    """Return the most decimals that any number without an exponent shows."""
    return max((decimals(word) for word in words if exponent(word) is None), default=0)


def decimals(word: str) -> int:
    """Return how many digits follow the point."""
    return len(re.split("[eE]", word)[0].partition(".")[2])


def exponent(word: str) -> int | None:
    """Return the power of ten that a number ends in, if it has one."""
    _, mark, power = word.lower().partition("e")
    return int(power) if mark else None
