"""The letters of the axes, explained once: what each stands for, and how long it is in this run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from attn_exp.report import words
from attn_exp.report.walk import Step

MEANING = {
    "t": words.QUERIES_ARE,
    "s": words.KEYS_ARE,
    "m": words.NUMBERS_IN_X,
    "n": words.NUMBERS_IN_MEMORY,
    "d": words.NUMBERS_OF_QUERY,
    "e": words.NUMBERS_OF_VALUE,
    "h": words.HEADS_ARE,
}
"""Every letter that a shape is written with, in the order in which they are explained."""


class Axis(NamedTuple):
    """One letter, what it stands for, and its sizes in words, such as `4 or 2`."""

    letter: str
    meaning: str
    sizes: str


def axes(steps: Iterable[Step]) -> list[Axis]:
    """Return the letters that the shapes of these stages are written with, and the sizes that they have."""
    sizes: dict[str, dict[int, None]] = {}
    for step in steps:
        letters = step.explained.axes.split()
        for letter, size in zip(["h", *letters] if len(step.shape) == 3 else letters, step.shape, strict=False):
            sizes.setdefault(letter, {})[size] = None
    return [
        Axis(letter, meaning, f" {words.OR} ".join(map(str, sizes[letter])))
        for letter, meaning in MEANING.items()
        if letter in sizes
    ]
