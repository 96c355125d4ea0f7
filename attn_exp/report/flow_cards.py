"""The stages of a flow as cards for wide pages: as wide as their text needs, columns and their heads side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from attn_exp.report import words
from attn_exp.report.charts.widths import BY_TABLE, Lettering
from attn_exp.report.flow_boxes import BOLD, LETTERS, TOGETHER, Box, Share
from attn_exp.report.flow_shapes import HUES, INK, QUIET, Rect, Shape, Words, mixed

LINE, PAD, IN_CELL, BEHIND = 13, 6, 4, 3
"""Pixels: from line to line, beside the text of a card and of a cell, and from a card to the one behind it."""


class Text(NamedTuple):
    """A line of a card: its symbol, if any, then words; a quiet one is grey."""

    text: str
    symbol: str = ""
    quiet: bool = False


class Measure(NamedTuple):
    """How wide text is, in pixels."""

    lettering: Lettering = BY_TABLE

    def text(self, text: str) -> float:
        """Return the width of plain letters."""
        return 72 * LETTERS / 8 * self.lettering.width(text)

    def line(self, line: Text) -> float:
        """Return the width of a line; bold letters are an eighth wider."""
        symbol = 72 * 1.12 * BOLD / 8 * self.lettering.width(line.symbol) + 4 if line.symbol else 0
        return symbol + self.text(line.text)

    def cell(self, share: Share) -> float:
        """Return the width of the cell of a share."""
        return max(self.text(share.part), self.text(share.becomes)) + 2 * IN_CELL

    def fitted(self, text: str, room: float, size: float = LETTERS) -> str:
        """Return a text, shortened to this width."""
        return self.lettering.fitted(text, room * 8 / 72 / size)


class Card(NamedTuple):
    """A stage on a wide page: its lines, below them a cell for each share, and its upper left corner and its size."""

    name: str
    hue: str
    lines: tuple[Text, ...]
    shares: tuple[Share, ...]
    cells: tuple[float, ...]
    heads: int
    width: float
    height: float
    x: float = 0
    y: float = 0

    @property
    def right(self) -> float:
        """Where it ends at the right."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Where it ends below."""
        return self.y + self.height

    @property
    def middle(self) -> float:
        """Half of its height down."""
        return self.y + self.height / 2


def card(box: Box, way: str, measure: Measure) -> Card:
    """Return the card of a stage; `way` says what is done to reach it."""
    lines = tuple(texts(box, way))
    cells = tuple(map(measure.cell, box.shares))
    wide = max(max(map(measure.line, lines)) + 2 * PAD, sum(cells))
    many = len(lines) + (2 if cells else 0)
    return Card(box.name, box.hue, lines, box.shares, cells, box.heads, wide, LINE * many + 7)


def texts(box: Box, way: str) -> Iterator[Text]:
    """Yield the lines of a stage: its name, what is done on the way, and its size."""
    if box.shares:
        said = [words.SIDE_BY_SIDE] if box.name == TOGETHER else []
        yield Text(", ".join([*said, box.sizes, *filter(None, [box.note])]), box.symbol)
        return
    yield Text("" if box.name not in (box.stage, TOGETHER) else box.word, box.symbol)
    if way:
        yield Text(way, quiet=True)
    yield Text(box.size)
    if box.note and box.hue == "x":
        yield Text(box.note)


def shapes_of(card: Card) -> Iterator[Shape]:
    """Yield the shapes of a card."""
    hue = HUES[card.hue]
    fill, several = mixed(hue, 0.16), card.heads > 1 and not card.shares
    if several:
        yield Rect(card.x + BEHIND, card.y + BEHIND, card.width, card.height, fill, hue)
    if card.shares:
        yield from cells_of(card)
    yield Rect(card.x, card.y, card.width, card.height, "none" if card.shares else fill, hue)
    for place, line in enumerate(card.lines, start=1):
        colour = QUIET if line.quiet else INK
        yield Words(card.x + PAD, card.y + LINE * place + 1, line.text, line.symbol, colour=colour)


def cells_of(card: Card) -> Iterator[Shape]:
    """Yield the cells of a card below its lines, every second one darker."""
    hue, top = HUES[card.hue], card.y + LINE * len(card.lines) + 4
    yield Rect(card.x, card.y, card.width, card.height, mixed(hue, 0.16))
    left, more = card.x, (card.width - sum(card.cells)) / len(card.cells)
    for place, (share, wide) in enumerate(zip(card.shares, card.cells, strict=True)):
        if share.becomes:
            yield Rect(left, top, wide + more, card.bottom - top, mixed(hue, 0.45 if place % 2 else 0.3))
        yield Words(left + IN_CELL + more / 2, top + LINE - 3, share.part)
        yield Words(left + IN_CELL + more / 2, top + 2 * LINE - 3, share.becomes)
        left += wide + more
