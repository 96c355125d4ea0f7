"""The letters of the axes, explained once: what each stands for, and how long it is in this run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from attn_exp.report.walk import Step

MEANING = {
    "t": "queries: the tokens that ask",
    "s": "keys: the tokens that are asked",
    "m": "numbers of a token in X",
    "n": "numbers of a token in the memory",
    "d": "numbers of a query or a key, in W those of all heads",
    "e": "numbers of a value, in W those of all heads",
    "h": "heads",
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
        Axis(letter, meaning, " or ".join(map(str, sizes[letter])))
        for letter, meaning in MEANING.items()
        if letter in sizes
    ]
