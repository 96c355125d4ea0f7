"""The picture of the flow for pages that are wider than high, in three bands.

The first leads to the right, from the input to queries, keys and values; the second back to the left, from the scores
to the weights; the third to the right again, to the output. Lengths are pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from attn_exp.report import words
from attn_exp.report.flow import CHAIN, COLUMNS
from attn_exp.report.flow_boxes import TOGETHER, Flow, Link
from attn_exp.report.flow_cards import LINE, Card, Measure, card, shapes_of
from attn_exp.report.flow_lines import FRAME, Placed, frame, lines
from attn_exp.report.flow_shapes import Shape, Sheet, Words, moved

EDGE, LANE, GAP, MOST_GAP = 6, 14, 15, 90
"""What is left free around a picture, beside it for lines, and between two cards of a band, at least and at most."""

START = EDGE + LANE
"""Where the cards of a band begin."""

TITLE, ROWS_APART, BANDS_APART, MOST_APART = 21, 6, 14, 30
"""The height of the title; between the rows of the first band, between bands, and how much more at most."""


class Room(NamedTuple):
    """How wide and how high something is."""

    width: float
    height: float


class Bands(NamedTuple):
    """The cards of a flow: those that nothing leads to, rows of queries, keys and values, the chain and the rest."""

    title: str
    sources: tuple[Card, ...]
    rows: tuple[tuple[Card | None, ...], ...]
    chain: tuple[Card, ...]
    tail: tuple[Card, ...]
    several: str
    links: tuple[Link, ...]

    @property
    def columns(self) -> list[tuple[int, float]]:
        """Which columns the first band has, the sources' being -1, and how wide each is."""
        kinds = enumerate(zip(*self.rows, strict=True))
        wide = [(kind, max((card.width for card in column if card), default=0)) for kind, column in kinds]
        first = -1, max((card.width for card in self.sources), default=0)
        return [(kind, width) for kind, width in (first, *wide) if width]

    @property
    def heights(self) -> list[float]:
        """How high each row of the first band is."""
        return [max(card.height for card in row if card) for row in self.rows]


def bands(title: str, flow: Flow, measure: Measure, longest: float) -> Bands:
    """Return the cards of a flow, not yet placed; what is done on the way to one is shortened to `longest`."""
    ways = {link.target: link.label for link in flow.links if link.label not in (words.COLUMNS, words.MIXED_BY, "")}
    known = {box.name: card(box, measure.fitted(ways.get(box.name, ""), longest), measure) for box in flow.boxes}
    rows = [tuple(known.get(f"{kind}{name}") for kind in ("W_", "flat ", "")) for name in COLUMNS]
    return Bands(
        title,
        tuple(known[name] for name in ("x", "memory") if name in known),
        tuple(row for row in rows if any(row)),
        tuple(known[name] for name in CHAIN if name in known),
        tuple(known[name] for name in ("context", TOGETHER, "W_o", "output") if name in known),
        flow.several,
        flow.links,
    )


def least(plan: Bands) -> Room:
    """Return how much room a picture needs at least."""
    wide = max(map(in_line, ([width for _, width in plan.columns], widths(plan.chain), widths(plan.tail))))
    return Room(wide + 2 * START, sum(heights(plan)) + (len(plan.rows) - 1) * ROWS_APART + 2 * BANDS_APART)


def most(plan: Bands) -> float:
    """Return how wide a picture is at most: lines between cards have an end."""
    bands = ([width for _, width in plan.columns], widths(plan.chain), widths(plan.tail))
    return max(sum(wide) + MOST_GAP * (len(wide) - 1) for wide in bands) + 2 * START


def widths(cards: Sequence[Card]) -> list[float]:
    """Return how wide cards are."""
    return [card.width for card in cards]


def in_line(wide: Sequence[float]) -> float:
    """Return how wide cards are side by side."""
    return sum(wide) + GAP * (len(wide) - 1)


def heights(plan: Bands) -> list[float]:
    """Return how high the title, the three bands and the frame are."""
    framed = LINE + 3 * FRAME if plan.several and plan.chain else 0
    return [TITLE, sum(plan.heights), tallest(plan.chain), tallest(plan.tail), framed + EDGE]


def tallest(cards: Sequence[Card]) -> float:
    """Return how high the highest card is."""
    return max((card.height for card in cards), default=0)


def wide_sheet(plans: Sequence[Bands], room: Room, measure: Measure) -> Sheet:
    """Return pictures below each other that fill a room, which is as large as they need at least."""
    needs = [least(plan).height for plan in plans]
    more, top, shapes = max(0, room.height - sum(needs)) / len(plans), 0.0, list[Shape]()
    for plan, need in zip(plans, needs, strict=True):
        shapes += picture(plan, Room(room.width, need + more), top, measure)
        top += need + more
    return Sheet(room.width, max(top, room.height), tuple(shapes))


def picture(plan: Bands, room: Room, top: float, measure: Measure) -> Iterator[Shape]:
    """Yield the shapes of one picture, from its upper edge down, those below others first."""
    wide = min(room.width, most(plan))
    left, free = (room.width - wide) / 2, max(0, room.height - least(plan).height)
    apart = min(MOST_APART, free / (len(plan.rows) + 3))
    top += (free - apart * (len(plan.rows) + 1)) / 2
    yield Words(EDGE, top + 15, measure.fitted(plan.title, room.width - 2 * EDGE, 12), size=12)
    placed = in_places(plan, wide, top + TITLE, apart)
    framed = frame(placed, plan.several, measure.text(plan.several) + FRAME) if plan.several and plan.chain else ()
    cards = (shape for card in placed.cards for shape in shapes_of(card))
    yield from (moved(shape, left, 0) for shape in (*framed, *lines(placed, plan.links), *cards))


def in_places(plan: Bands, wide: float, top: float, apart: float) -> Placed:
    """Return the cards in their places, so far apart from upper to lower ones beyond what they need."""
    room = wide - 2 * START
    rows = tuple(first_band(plan, room, top, apart))
    below = top + sum(plan.heights) + (len(plan.rows) - 1) * (ROWS_APART + apart) + BANDS_APART + apart
    channel = below - (BANDS_APART + apart) / 2
    if plan.chain:
        below += LINE + FRAME if plan.several else 0
        chain = tuple(reversed(spread(plan.chain[::-1], room, below)))
        below += tallest(plan.chain) + BANDS_APART + apart + (FRAME if plan.several else 0)
    else:
        chain = ()
    tail = spread(plan.tail, room, below)
    return Placed(tuple(beside(plan, rows)), rows, chain, tail, EDGE / 2, wide - EDGE / 2, channel)


def first_band(plan: Bands, room: float, top: float, apart: float) -> Iterator[Card]:
    """Yield the projections, then queries, keys and values, each in its row and its column."""
    columns, y = plan.columns, top
    gap = between(columns, room)
    left = START + (columns[0][1] + gap if plan.sources else 0)
    places = dict[int, tuple[float, float]]()
    for kind, width in columns[1 if plan.sources else 0 :]:
        places[kind], left = (left, width), left + width + gap
    for row, height in zip(plan.rows, plan.heights, strict=True):
        for kind, one in enumerate(row):
            if one:
                x, width = places[kind]
                yield one._replace(x=x, width=width, y=y + (height - one.height) / 2)
        y += height + ROWS_APART + apart


def beside(plan: Bands, rows: Sequence[Card]) -> Iterator[Card]:
    """Yield the sources, each at the middle of what it leads to."""
    for source in plan.sources:
        fed = [link.target for link in plan.links if link.source == source.name]
        middles = [card.middle for card in rows if card.name in fed] or [card.middle for card in rows] or [0.0]
        yield source._replace(x=START, y=(min(middles) + max(middles) - source.height) / 2)


def spread(cards: Sequence[Card], room: float, top: float) -> tuple[Card, ...]:
    """Return cards side by side from the left, as far apart as the room allows."""
    gap, left, placed = between([(0, card.width) for card in cards], room), float(START), list[Card]()
    for one in cards:
        placed.append(one._replace(x=left, y=top + (tallest(cards) - one.height) / 2))
        left += one.width + gap
    return tuple(placed)


def between(columns: Sequence[tuple[int, float]], room: float) -> float:
    """Return how far apart so wide columns stand."""
    return min(MOST_GAP, (room - sum(width for _, width in columns)) / max(1, len(columns) - 1))
