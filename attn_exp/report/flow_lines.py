"""The lines between the cards of a flow on a wide page, and the frame around what is done in each head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from attn_exp.report.flow_boxes import Link
from attn_exp.report.flow_cards import BEHIND, LINE, Card
from attn_exp.report.flow_shapes import QUIET, RULE, WASH, Curve, Shape, Words

FRAME = 5
"""Pixels from the frame to what it holds."""


class Placed(NamedTuple):
    """Cards in their places: sources, rows of queries, keys and values, the chain, the rest.

    `left` and `right` are where lines pass beside them, `channel` where they pass below the rows.
    """

    sources: tuple[Card, ...]
    rows: tuple[Card, ...]
    chain: tuple[Card, ...]
    tail: tuple[Card, ...]
    left: float
    right: float
    channel: float

    @property
    def cards(self) -> tuple[Card, ...]:
        """All of them."""
        return (*self.sources, *self.rows, *self.chain, *self.tail)


def lines(placed: Placed, links: Sequence[Link]) -> Iterator[Shape]:
    """Yield the lines; those of the chain and of the rest lead from card to card."""
    named = {card.name: card for card in placed.cards}
    for link in links:
        yield from line(placed, named[link.source], named[link.target])
    for one, other in pairwise(placed.chain):
        yield from leftwards(f"M{one.x:.1f} {one.middle:.1f}", other.right + (BEHIND if other.heads > 1 else 0), one)
    for one, other in pairwise(placed.tail):
        yield from rightwards(f"M{one.right:.1f} {other.middle:.1f}", other)


def line(placed: Placed, source: Card, target: Card) -> Iterator[Shape]:
    """Yield the line of one link from the first band, or down from the chain."""
    if source in placed.sources and target in placed.rows:
        bend = target.x - 8
        yield from rightwards(f"M{source.right:.1f} {source.middle:.1f}H{bend:.1f}V{target.middle:.1f}", target)
    elif source in placed.sources and target in placed.tail:
        yield from rightwards(f"M{source.x:.1f} {source.middle:.1f}H{placed.left:.1f}V{target.middle:.1f}", target)
    elif source in placed.rows and target in placed.rows:
        yield from rightwards(f"M{source.right:.1f} {target.middle:.1f}", target)
    elif source in placed.rows and target in placed.chain:
        path = f"M{source.right:.1f} {source.middle:.1f}H{placed.right:.1f}V{target.middle:.1f}"
        yield from leftwards(path, target.right + (BEHIND if target.heads > 1 else 0), target)
    elif source in placed.rows:
        yield from rightwards(
            f"{out_of(placed, source)}V{placed.channel:.1f}H{placed.left:.1f}V{target.middle:.1f}", target
        )
    elif source in placed.chain and target in placed.tail:
        x = source.x + min(source.width, target.width) / 2
        yield Curve(f"M{x:.1f} {source.bottom:.1f}V{target.y - 6:.1f}")
        yield Curve(f"M{x - 3:.1f} {target.y - 6:.1f}h6l-3 6z", fill=QUIET)


def out_of(placed: Placed, source: Card) -> str:
    """Return how a line leaves the rows: down from the lowest, beside the others."""
    if source.middle >= max(card.middle for card in placed.rows):
        return f"M{source.x + 20:.1f} {source.bottom:.1f}"
    return f"M{source.right:.1f} {source.middle:.1f}H{placed.right:.1f}"


def rightwards(path: str, target: Card) -> Iterator[Shape]:
    """Yield a line that ends at the left side of a card."""
    yield Curve(f"{path}H{target.x - 6:.1f}")
    yield Curve(f"M{target.x - 6:.1f} {target.middle - 3:.1f}v6l6-3z", fill=QUIET)


def leftwards(path: str, edge: float, target: Card) -> Iterator[Shape]:
    """Yield a line that ends at the right side of a card."""
    yield Curve(f"{path}H{edge + 6:.1f}")
    yield Curve(f"M{edge + 6:.1f} {target.middle - 3:.1f}v6l-6-3z", fill=QUIET)


def frame(placed: Placed, several: str, wide: float) -> Iterator[Shape]:
    """Yield the frame around the chain and the context, and its words, which are so wide."""
    left, top = placed.chain[-1].x - FRAME, min(card.y for card in placed.chain) - LINE - FRAME
    right = max(max(card.right for card in placed.chain) + BEHIND, left + wide) + FRAME
    bottom = max(card.bottom for card in placed.chain) + FRAME + BEHIND
    path = f"M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}"
    if placed.tail and placed.tail[0].name == "context":
        inner, last = placed.tail[0].right + FRAME + BEHIND, placed.tail[0].bottom + FRAME + BEHIND
        path += f"H{inner:.1f}V{last:.1f}H{left:.1f}z" if inner < right else f"V{last:.1f}H{left:.1f}z"
    else:
        path += f"H{left:.1f}z"
    yield Curve(path, fill=WASH, edge=RULE)
    yield Words(left + FRAME, top + LINE, several, colour=QUIET)
