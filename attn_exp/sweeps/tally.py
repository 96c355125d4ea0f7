"""How many printed results agree, as the lines of parts say it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attn_exp.sweeps.task import TALLY

AGREE = re.compile(r"(\d+) of (\d+)")


@dataclass
class Tally:
    """How many printed results agree with the computed ones, and of how many."""

    agree: int = 0
    printed: int = 0

    def add(self, other: Tally) -> None:
        """Count those of another tally too."""
        self.agree += other.agree
        self.printed += other.printed

    def __str__(self) -> str:
        return f"{self.agree:,} of {self.printed:,}"


def tallying(head: Sequence[str]) -> Callable[[Sequence[str]], Tally]:
    """Return what reads the printed results of a line: columns of their own, or `6 of 6` in parts from before those."""
    if set(TALLY) <= set(head):
        agreeing, printed = (head.index(name) for name in TALLY)
        return lambda line: Tally(int(line[agreeing]), int(line[printed]))
    if "agree" not in head:
        return lambda line: Tally()
    column = head.index("agree")
    return lambda line: tally_in(line[column])


def tally_in(cell: str) -> Tally:
    """Read `6 of 6`, or nothing.

    Raises:
        ValueError: anything else.
    """
    if not cell:
        return Tally()
    match = AGREE.fullmatch(cell)
    if match is None:
        raise ValueError(f"agree is {cell!r}; expected a tally such as 6 of 6")
    return Tally(int(match[1]), int(match[2]))
