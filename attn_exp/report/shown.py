"""What documents know of figures and of sizes."""

from __future__ import annotations

from typing import NamedTuple

MOST_NUMBERS = 150_000
"""A page carries the arrays of a panel only up to this many numbers each; beyond, what moves is left out."""


class Shown(NamedTuple):
    """A figure in a report: where it is, and the words below it."""

    source: str
    caption: str
