"""The parts of a picture of the flow: boxes for stages, arrows between them, and their colours.

Lengths are pixels; x grows to the right, y downwards.
"""

from __future__ import annotations

from typing import NamedTuple

from attn_exp.report import words
from attn_exp.report.charts.widths import BY_TABLE
from attn_exp.report.charts.widths import width as inches
from attn_exp.report.explain import spoken

WIDTH, TALL, LINE = 352, 40, 14
LETTERS, BOLD = 11, 12
"""How large letters are, and those of a symbol."""

HUES = {"x": "x", "memory": "x", "q": "q", "k": "k", "v": "v", "weights": "a", "context": "c", "output": "y"}
"""Which of the colours a stage has; projections have w, all between queries and weights s."""

TOGETHER = "together"
"""The name of the box in which the heads stand side by side again."""


class Share(NamedTuple):
    """What becomes of some columns or of a head: `3–4` and `→ head 2`.

    `short` is the second in fewer letters, and `other` what it then leaves out.
    """

    part: str
    becomes: str
    short: str
    other: str = ""

    @property
    def line(self) -> str:
        """Both of them on one line."""
        return f"{self.part} {self.becomes}"


GAP_IN_SHARES = Share("…", "", "")
"""Stands for the heads that are left out."""


class Box(NamedTuple):
    """A stage: its symbol and name, its size in words and in numbers, and where its middle and its top are.

    `href` leads to its table; `heads` is how many matrices of this size there are, `parts` into how many heads its
    columns part, `shares` says how, and `lines` says it below each other under a `heading`, with what else is done;
    `more` is a word beside its symbol.
    """

    name: str
    stage: str
    symbol: str
    rows: int
    columns: int
    middle: int
    width: int
    href: str = ""
    heads: int = 1
    parts: int = 1
    lines: tuple[str, ...] = ()
    shares: tuple[Share, ...] = ()
    heading: str = ""
    note: str = ""
    more: str = ""
    top: int = 0

    @property
    def hue(self) -> str:
        """The letter of its colour."""
        return hue(self.stage)

    @property
    def size(self) -> str:
        """How many rows and columns it has."""
        return words.SIZE.format(rows=self.rows, columns=self.columns)

    @property
    def sizes(self) -> str:
        """Its size, and of how many heads."""
        return words.HEADS_OF_SIZE.format(heads=self.heads, size=self.size) if self.heads > 1 else self.size

    @property
    def word(self) -> str:
        """What it is, in a word."""
        if self.name == TOGETHER:
            return words.SIDE_BY_SIDE
        return self.more or spoken(self.stage)

    @property
    def height(self) -> int:
        """How tall it is."""
        return LINE * (len(self.lines) + 1) + 6 if self.lines else TALL

    @property
    def left(self) -> int:
        """Where it begins."""
        return self.middle - self.width // 2


class Arrow(NamedTuple):
    """A line from one box to the next with what happens on the way; `path` and `tip` are SVG's."""

    path: str
    tip: str
    label: str
    x: int
    y: int


class Link(NamedTuple):
    """Which box leads to which, and what happens on the way."""

    source: str
    target: str
    label: str = ""


class Flow(NamedTuple):
    """A whole picture; `frame` is the top and the bottom of what is done in each head, and the words beside it.

    `links` are what its arrows join, and `several` says what is done in each head, in full.
    """

    height: int
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    frame: tuple[int, int, str] | None
    links: tuple[Link, ...] = ()
    several: str = ""
    width: int = WIDTH


def hue(stage: str) -> str:
    """Return the letter of the colour of a stage, in the picture and at its table."""
    return "w" if stage[:2] in ("W_", "b_") else HUES.get(stage, "s")


def wide(text: str) -> float:
    """Return how wide a text is."""
    return 72 * inches(text, LETTERS)


def wide_symbol(symbol: str) -> float:
    """Return how wide a symbol is, with the space after it: bold letters are an eighth wider."""
    return 72 * 1.12 * inches(symbol, BOLD) + 4


def fitted(text: str, room: float) -> str:
    """Return a text, shortened to this width."""
    return BY_TABLE.fitted(text, room * 8 / LETTERS / 72)
