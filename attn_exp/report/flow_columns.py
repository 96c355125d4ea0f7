"""The picture of the flow for pages wider than high: columns from left to right, and no line leads back.

The input stands at the left, then come projections, queries, keys and values, each in its row; the scores lead down to
the weights in a column of their own, and the context down to the output in the last. Lengths are pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from attn_exp.report.charts.chart import QUIET, Curve, Label, Shape, Sheet
from attn_exp.report.flow import Link
from attn_exp.report.flow_sheet import (
    BEHIND,
    EDGE,
    FRAME,
    LINE,
    RULE,
    STACKED,
    TITLE_ABOVE,
    TURN,
    WASH,
    Bands,
    Card,
    Measure,
    Placed,
    Room,
    below_each_other,
    beside,
    downwards,
    rightwards,
    shapes_of_card,
    stack,
)

GAP, MOST_GAP, DOWN, MOST_DOWN, ROWS_APART = 15, 70, 13, 34, 6
"""Between two columns, from card to card of a column, and between rows: at least, and at most."""


class Column(NamedTuple):
    """Cards one below the other: how wide they are, and how high together, so far apart at least."""

    cards: tuple[Card, ...]
    width: float

    def height(self, apart: float) -> float:
        """Return how high it is."""
        return sum(card.height for card in self.cards) + apart * (len(self.cards) - 1)

    def apart(self, room: float) -> float:
        """Return how far apart its cards stand in a room."""
        return min(MOST_DOWN, (room - self.height(0)) / max(1, len(self.cards) - 1))

    def used(self, room: float) -> float:
        """Return how much of a room it takes."""
        return self.height(self.apart(room))


def stacks(plan: Bands, measure: Measure) -> tuple[Column, Column]:
    """Return the column that leads to the weights, which has room for the words of its frame, and the last one."""
    words = measure.text(plan.several) + FRAME if plan.several and plan.chain else 0.0
    wide = [max((card.width + BEHIND for card in cards), default=0.0) for cards in (plan.chain, plan.tail)]
    return Column(plan.chain, max(wide[0], words)), Column(plan.tail, wide[1])


def above(plan: Bands) -> float:
    """Return how high what stands above the chain is: the upper edge of its frame, and the words there."""
    return LINE + FRAME if plan.several and plan.chain else 0


def below(plan: Bands) -> float:
    """Return how much room there is below the chain, for its frame and the line of the values."""
    return (FRAME + TURN if plan.several and plan.chain else TURN) + BEHIND if plan.chain else 0


def widths_of(plan: Bands, measure: Measure) -> list[float]:
    """Return how wide all columns are."""
    chain, tail = stacks(plan, measure)
    return [width for _, width in plan.columns] + [column.width for column in (chain, tail) if column.cards]


def lanes(plan: Bands) -> float:
    """Return how much room lines need beside the chain, more than between other columns."""
    return 3 * TURN + (2 * FRAME if plan.several else 0) if plan.chain else TURN


def least(plan: Bands, measure: Measure) -> Room:
    """Return how much room a picture needs at least."""
    wide = widths_of(plan, measure)
    chain, tail = stacks(plan, measure)
    rows = sum(plan.heights) + (len(plan.rows) - 1) * ROWS_APART
    high = max(rows, above(plan) + chain.height(DOWN) + below(plan), above(plan) + tail.height(DOWN) + BEHIND)
    return Room(sum(wide) + GAP * (len(wide) - 1) + lanes(plan) + 2 * EDGE, TITLE_ABOVE + high + EDGE)


def columns_sheet(plans: Sequence[Bands], room: Room, measure: Measure) -> Sheet:
    """Return pictures in columns below each other that fill a room, which is as large as they need at least."""
    return below_each_other(
        [(least(plan, measure).height, partial(picture, plan, measure=measure)) for plan in plans], room
    )


def picture(plan: Bands, room: Room, top: float, measure: Measure) -> Iterator[Shape]:
    """Yield the shapes of one picture, from its upper edge down, those below others first."""
    wide = widths_of(plan, measure)
    gap = min(MOST_GAP, (room.width - 2 * EDGE - lanes(plan) - sum(wide)) / max(1, len(wide) - 1))
    left = (room.width - sum(wide) - gap * (len(wide) - 1) - lanes(plan)) / 2
    yield Label(EDGE, top + 15, measure.fitted(plan.title, room.width - 2 * EDGE, 12), size=12)
    placed = in_places(plan, Room(gap, room.height - TITLE_ABOVE - EDGE), (left, top + TITLE_ABOVE), measure)
    cards = (shape for card in placed.cards for shape in shapes_of_card(card))
    framed = frame(placed, plan.several, measure.text(plan.several)) if plan.several and plan.chain else ()
    yield from (*framed, *lines(placed, plan.links), *cards)


def in_places(plan: Bands, room: Room, corner: tuple[float, float], measure: Measure) -> Placed:
    """Return the cards in their places: columns `room.width` apart, in its height, from a corner on."""
    (left, top), gap = corner, room.width
    chain, tail = stacks(plan, measure)
    free = room.height - sum(plan.heights)
    apart = min(MOST_DOWN, free / max(1, len(plan.rows) - 1)) if len(plan.rows) > 1 else 0
    high = sum(plan.heights) + apart * (len(plan.rows) - 1)
    places, x = dict[int, tuple[float, float]](), left
    for kind, width in plan.columns:
        places[kind], x = (x, width), x + width + gap
    rows, y = list[Card](), top + (room.height - high) / 2
    for row, height in zip(plan.rows, plan.heights, strict=True):
        pair = (height - stack(row)) / 2
        for kind, one in enumerate(row):
            if one:
                x_of, wide = places.get(kind, places[0]) if plan.stacked else places[kind]
                rows.append(one._replace(x=x_of, width=wide, y=y + (height - one.height) / 2))
                if plan.stacked and kind < 2:
                    rows[-1], pair = rows[-1]._replace(y=y + pair), pair + one.height + STACKED
        y += height + apart
    sources = [source._replace(x=left) for source in beside(plan, rows)]
    side = lanes(plan) / 3 * 2 if plan.chain else 0
    lane = x - gap / 2
    x += side
    ends = room.height - above(plan) - below(plan), room.height - above(plan) - BEHIND
    used = max(chain.used(ends[0]) + below(plan) if chain.cards else 0, tail.used(ends[1]) + BEHIND)
    y = top + above(plan) + (room.height - above(plan) - used) / 2
    chained = down(chain, x, y, ends[0])
    under = (chained[-1].bottom if chained else y) + below(plan) - BEHIND / 2
    x += (chain.width + gap if chain.cards else 0) + lanes(plan) - side
    ended = down(tail, x, y, ends[1])
    right = x - gap / 2 if chain.cards else x - gap / 2 - TURN / 2
    return Placed(tuple(sources), tuple(rows), chained, ended, lane, right, lane + TURN, under)


def down(column: Column, left: float, top: float, room: float) -> tuple[Card, ...]:
    """Return the cards of a column below each other, each in its middle, as far apart as there is room."""
    apart = column.apart(room)
    y, placed = top, list[Card]()
    for card in column.cards:
        placed.append(card._replace(x=left + (column.width - BEHIND - card.width) / 2, y=y))
        y += card.height + apart
    return tuple(placed)


def lines(placed: Placed, links: Sequence[Link]) -> Iterator[Shape]:
    """Yield the lines; those of the chain and of the rest lead down from card to card."""
    named = {card.name: card for card in placed.cards}
    for link in links:
        yield from line(placed, named[link.source], named[link.target])
    for one, other in (*pairwise(placed.chain), *pairwise(placed.tail)):
        middle = one.x + one.width / 2
        yield from downwards(f"M{middle:.1f} {one.bottom:.1f}", middle, other)


def line(placed: Placed, source: Card, target: Card) -> Iterator[Shape]:
    """Yield the line of one link, unless it leads down a column.

    `placed.left` is where lines lead up or down before the chain, `channel` where that of the values does, `under`
    where it passes below the chain, and `right` where lines lead up or down before the last column.
    """
    start, end = f"M{source.right:.1f} {source.middle:.1f}", f"V{target.middle:.1f}"
    if source in placed.sources and target in placed.rows:
        yield from rightwards(f"{start}H{target.x - 8:.1f}{end}", target)
    elif source in placed.sources and target in placed.tail:
        down = f"M{source.x + source.width / 2:.1f} {source.bottom:.1f}V{placed.under:.1f}"
        yield from rightwards(f"{down}H{placed.right:.1f}{end}", target)
    elif source in placed.rows and target in placed.rows:
        if source.x == target.x:
            middle = source.x + source.width / 2
            yield from downwards(f"M{middle:.1f} {source.bottom:.1f}", middle, target)
        else:
            yield from rightwards(f"{start}H{target.x - 9:.1f}{end}", target)
    elif source in placed.rows and target in placed.chain:
        yield from rightwards(f"{start}H{placed.left:.1f}{end}", target)
    elif source in placed.rows and placed.chain:
        yield from rightwards(f"{start}H{placed.channel:.1f}V{placed.under:.1f}H{placed.right:.1f}{end}", target)
    elif source in placed.rows or (source in placed.chain and target in placed.tail):
        yield from rightwards(f"{start}H{placed.right:.1f}{end}", target)


def frame(placed: Placed, several: str, wide: float) -> Iterator[Shape]:
    """Yield the frame around the chain and the context, and its words, which are so wide."""
    left, top = min(card.x for card in placed.chain) - FRAME, placed.chain[0].y - LINE - FRAME
    right = max(max(card.right for card in placed.chain) + BEHIND, left + wide) + FRAME
    bottom, path = placed.chain[-1].bottom + BEHIND + FRAME, f"M{left:.1f} {top:.1f}"
    if placed.tail and placed.tail[0].name == "context":
        last = placed.tail[0]
        path += f"H{last.right + BEHIND + FRAME:.1f}V{last.bottom + BEHIND + FRAME:.1f}"
        bottom = max(bottom, last.bottom + BEHIND + FRAME)
    yield Curve(f"{path}H{right:.1f}V{bottom:.1f}H{left:.1f}z", fill=WASH, edge=RULE)
    yield Label(left + FRAME, top + LINE, several, colour=QUIET)
