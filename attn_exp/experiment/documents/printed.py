"""Numbers as documents print them: what they say, and how exactly they say it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from attn_exp.arrays import Array

NUMBER = re.compile(r"[-+\u2212]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+\u2212]?\d+)?")
"""A decimal number, its minus a hyphen or the typographer's."""

SETTINGS = re.compile(
    r"\b(?:grad_fn|requires_grad|dtype|device|shape|size|layout|weak_type|sharding|name|path)\s*=\s*"
    r"(?:<[^<>]*>|\([^()]*\)|torch\.Size\([^()]*\)|'[^']*'|\"[^\"]*\"|[\w.:/]+)"
)
"""What PyTorch, JAX and TensorFlow print beside the numbers, such as `grad_fn=<SelectBackward0>` or `shape=(2, 3)`."""


def matches(text: str) -> Iterator[re.Match[str]]:
    """Yield the numbers of a printed text; digits in words and in what libraries print beside them are none."""
    beside = [found.span() for found in SETTINGS.finditer(text)]
    for found in NUMBER.finditer(text):
        start, stop = found.span()
        in_word = text[start - 1 : start].isalpha() or text[start - 1 : start] == "_" or text[stop : stop + 1].isalpha()
        if not in_word and not any(first <= start < last for first, last in beside):
            yield found


def bare(text: str) -> str:
    """Return the brackets of a print such as `tensor([[0.5, 0.5]], grad_fn=<MulBackward0>)`; other text as it is."""
    whole = SETTINGS.sub("", text)
    first, last = whole.find("["), whole.rfind("]")
    wrapped = re.match(r"\s*(?:<|[A-Za-z_][\w. ]*[(:])", text) is not None
    return whole[first : last + 1] if wrapped and 0 <= first < last else text


def read(text: str, digits: int | None = None) -> tuple[Array, Array]:
    """Return the numbers of a printed text in reading order, and half a unit of each one's last digit.

    NumPy writes a whole array with as many decimals as its longest number needs and leaves trailing zeros off, so the
    numbers share their decimals: 0.16 beside 0.309 means 0.160. A number with an exponent counts its own:
    1.24e-13 is exact to 0.005e-13. `digits` says how many decimals are meant where every number lost zeros.
    """
    words = [found.group().replace("\u2212", "-") for found in matches(text)]
    plain = shared(words) if digits is None else digits
    lasts = [plain if power is None else decimals(word) - power for word in words for power in [exponent(word)]]
    return np.array([float(word) for word in words]), np.array([float(f"0.5e{-last}") for last in lasts])


def rewritten(text: str, values: Array, digits: int | None = None) -> str:
    """Write other numbers into the brackets of a printed text, to as many decimals, and at least `digits`."""
    found = list(matches(text))
    places, done, written = max(shared([match.group() for match in found]), digits or 0), 0, ""
    for match, value in zip(found, values.tolist(), strict=True):
        word = match.group()
        new = format(value, f".{places}f" if exponent(word) is None else f".{decimals(word)}e")
        written, done = f"{written}{text[done : match.start()]}{new}", match.end()
    return written + text[done:]


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
