"""What a kind of layers writes: a file's text, what is to be checked in it, and the library that it is written in."""

from __future__ import annotations

from dataclasses import dataclass

ALIKE = {"scale_twice": "scale_by_d|scale_twice", "projected_twice": "projected_twice|values_from_keys"}
"""What may be said as well of a mistake that gives the same numbers."""


@dataclass(frozen=True)
class Written:
    """A file, and the name of what is to be checked in it; `words` are settings that a user would pass."""

    source: str
    name: str
    framework: str
    words: str = ""
