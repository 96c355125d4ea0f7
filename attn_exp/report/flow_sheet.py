"""The pictures of the flow as shapes on a sheet, for files: as the page has them, or for pages wider than high.

Those for wide pages stand in three bands: the first leads to the right, from the input to queries, keys and values, the
second back to the left, from the scores to the weights, the third to the right again, to the output. Lengths are
pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from attn_exp.report import words
from attn_exp.report.charts.chart import INK, PAPER, QUIET, Curve, Label, Rect, Shape, Sheet
from attn_exp.report.charts.widths import BY_TABLE, Lettering
from attn_exp.report.flow import BOLD, CHAIN, COLUMNS, LETTERS, TOGETHER, Box, Flow, Link, Share

RULE, WASH = "#b6bec7", "#f4f6f8"
COLOURS = {
    "x": "#66717d", "w": "#66717d", "q": "#0072b2", "k": "#d55e00", "v": "#009e73",
    "s": "#b0579a", "a": "#d99a00", "c": "#2f9fd8", "y": "#7a5af0",
}  # fmt: skip
"""The colours of stages, as the page has them."""

TITLE, MARGIN = 24, 2
"""Pixels: the height of the title above a picture, and what is left free around it."""


def sheet(flows: Sequence[tuple[str, Flow]], across: int) -> Sheet:
    """Return pictures under their titles, so many side by side."""
    shapes, top, wide = list[Shape](), 0.0, max(flow.width for _, flow in flows) + 2 * MARGIN
    for start in range(0, len(flows), across):
        line = flows[start : start + across]
        for place, (title, flow) in enumerate(line):
            corner = place * wide + MARGIN, top + TITLE
            shapes.append(Label(corner[0], top + 17, short_title(title), size=12))
            shapes += [moved(shape, *corner) for shape in shapes_of_flow(flow)]
        top += TITLE + max(flow.height for _, flow in line) + MARGIN
    return Sheet(wide * min(across, len(flows)), top, tuple(shapes))


def short_title(title: str, most: int = 46) -> str:
    """Return a title that fits above a picture."""
    return title if len(title) <= most else f"{title[: most - 1]}…"


def moved(shape: Shape, x: float, y: float) -> Shape:
    """Return a shape at another place."""
    return shape._replace(x=shape.x + x, y=shape.y + y)


def shapes_of_flow(flow: Flow) -> Iterator[Shape]:
    """Yield the shapes of one picture, those below others first."""
    if flow.frame:
        top, bottom, words = flow.frame
        yield Rect(28, top, flow.framed, bottom - top, WASH, RULE, dashed=True)
        yield Label(18, (top + bottom) / 2, words, colour=QUIET, turned=True)
    for arrow in flow.arrows:
        yield Curve(arrow.path)
        yield Curve(arrow.tip, fill=QUIET)
        if arrow.label:
            yield Label(arrow.x, arrow.y, arrow.label, colour=QUIET)
    for box in flow.boxes:
        yield from (moved(shape, box.left, box.top) for shape in box_shapes(box))


def box_shapes(box: Box) -> Iterator[Shape]:
    """Yield the shapes of one stage, from its upper left corner."""
    hue = COLOURS[box.hue]
    fill = mixed(hue, 0.16)
    if box.heads > 1 and not box.lines:
        yield Rect(4, 4, box.width, box.height, fill, hue)
    yield Rect(0, 0, box.width, box.height, fill, hue)
    if box.lines:
        yield Label(7, 15, box.heading, box.symbol)
        yield from (Label(7, 15 + 14 * place, line) for place, line in enumerate(box.lines, start=1))
        return
    plain = len(box.size) > 9
    if not plain:
        yield from icon(box, 28)
    yield Label(8 if plain else 40, 17, box.word, box.symbol)
    yield Label(8 if plain else 40, 32, box.size)


def icon(box: Box, side: int) -> Iterator[Rect]:
    """Yield the cells of a small picture of a matrix, every second part of its columns darker."""
    unit = min(side / box.rows, side / box.columns, 7)
    unit = int(unit) if unit >= 1 else unit
    wide, tall = max(int(unit * box.columns), 3), max(int(unit * box.rows), 3)
    top, hue = (box.height - tall) // 2, COLOURS[box.hue]
    yield Rect(7, top, wide, tall, mixed(hue, 0.55))
    if 1 < box.parts <= 16 and wide >= box.parts:
        share = wide // box.parts
        yield from (Rect(7 + part * share, top, share, tall, mixed(hue, 0.82)) for part in range(1, box.parts, 2))
    if unit > 2:
        yield from (Rect(7, top + row * unit - 0.5, wide, 1, PAPER) for row in range(1, box.rows))
        yield from (Rect(7 + column * unit - 0.5, top, 1, tall, PAPER) for column in range(1, box.columns))


def mixed(colour: str, share: float) -> str:
    """Return a colour that is this share of another, and else white."""
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(255 + share * (part - 255)):02x}" for part in parts)


EDGE, LANE, GAP, MOST_GAP = 6, 14, 15, 90
"""What is left free around a picture, beside it for lines, and between two cards of a band, at least and at most."""

START = EDGE + LANE
"""Where the cards of a band begin."""

TITLE_ABOVE, ROWS_APART, BANDS_APART, MOST_APART = 19, 6, 13, 30
"""The height of the title; between the rows of the first band, between bands, and how much more at most."""


STACKED = 13
"""How far what is projected stands below its matrix, where it does."""


class Room(NamedTuple):
    """How wide and how high something is."""

    width: float
    height: float


class Bands(NamedTuple):
    """The cards of a flow: those that nothing leads to, rows of queries, keys and values, the chain and the rest.

    Where it is `stacked`, what is projected stands below its matrix, not beside it.
    """

    title: str
    sources: tuple[Card, ...]
    rows: tuple[tuple[Card | None, ...], ...]
    chain: tuple[Card, ...]
    tail: tuple[Card, ...]
    several: str
    links: tuple[Link, ...]
    stacked: bool = False

    @property
    def columns(self) -> list[tuple[int, float]]:
        """Which columns the first band has, the sources' being -1, and how wide each is."""
        kinds = enumerate(zip(*self.rows, strict=True))
        wide = [(kind, max((card.width for card in column if card), default=0)) for kind, column in kinds]
        first = -1, max((card.width for card in self.sources), default=0)
        if self.stacked:
            wide = [(0, max(width for _, width in wide[:2])), *wide[2:]]
        return [(kind, width) for kind, width in (first, *wide) if width]

    @property
    def heights(self) -> list[float]:
        """How high each row of the first band is."""
        single = [max(card.height for card in row if card) for row in self.rows]
        return [max(high, stack(row)) for high, row in zip(single, self.rows, strict=True)] if self.stacked else single


def stack(row: Sequence[Card | None]) -> float:
    """Return how high a matrix and what it projects are, one below the other."""
    two = [one.height for one in row[:2] if one]
    return sum(two) + STACKED * (len(two) - 1)


def bands(title: str, flow: Flow, measure: Measure, longest: float, upright: bool = False) -> Bands:
    """Return the cards of a flow, not yet placed; what is done on the way to one is shortened to `longest`.

    Heads stand side by side in a card, or below each other where it is `upright`.
    """
    ways = {link.target: link.label for link in flow.links if link.label not in (words.COLUMNS, words.MIXED_BY, "")}
    make = upright_card if upright else card
    known = {box.name: make(box, measure.fitted(ways.get(box.name, ""), longest), measure) for box in flow.boxes}
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
    framed = LINE + 3 * FRAME + TURN if plan.several and plan.chain else 0
    bands = [TITLE_ABOVE, sum(plan.heights), tallest(plan.chain), tallest(plan.tail), framed + EDGE]
    return Room(wide + 2 * START, sum(bands) + (len(plan.rows) - 1) * ROWS_APART + 2 * BANDS_APART)


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


def tallest(cards: Sequence[Card]) -> float:
    """Return how high the highest card is."""
    return max((card.height for card in cards), default=0)


def wide_sheet(plans: Sequence[Bands], room: Room, measure: Measure) -> Sheet:
    """Return pictures in bands below each other that fill a room, which is as large as they need at least."""
    drawn = [(least(plan).height, partial(picture, plan, measure=measure)) for plan in plans]
    return below_each_other(drawn, room)


def below_each_other(drawn: Sequence[tuple[float, Callable[[Room, float], Iterator[Shape]]]], room: Room) -> Sheet:
    """Return pictures that fill a room: how high each must be, and what draws it in its room from an edge down."""
    more, top, shapes = max(0, room.height - sum(need for need, _ in drawn)) / len(drawn), 0.0, list[Shape]()
    for need, draw in drawn:
        shapes += draw(Room(room.width, need + more), top)
        top += need + more
    return Sheet(room.width, max(top, room.height), tuple(shapes))


def picture(plan: Bands, room: Room, top: float, measure: Measure) -> Iterator[Shape]:
    """Yield the shapes of one picture, from its upper edge down, those below others first."""
    wide = min(room.width, most(plan))
    left, free = (room.width - wide) / 2, max(0, room.height - least(plan).height)
    apart = min(MOST_APART, free / (len(plan.rows) + 3))
    top += (free - apart * (len(plan.rows) + 1)) / 2
    yield Label(EDGE, top + 15, measure.fitted(plan.title, room.width - 2 * EDGE, 12), size=12)
    placed = in_places(plan, wide, top + TITLE_ABOVE, apart)
    framed = (
        frame_around(placed, plan.several, measure.text(plan.several) + FRAME) if plan.several and plan.chain else ()
    )
    cards = (shape for card in placed.cards for shape in shapes_of_card(card))
    yield from (moved(shape, left, 0) for shape in (*framed, *lines_between(placed, plan.links), *cards))


def in_places(plan: Bands, wide: float, top: float, apart: float) -> Placed:
    """Return the cards in their places, so far apart from upper to lower ones beyond what they need."""
    room = wide - 2 * START
    rows = tuple(first_band(plan, room, top, apart))
    below = top + sum(plan.heights) + (len(plan.rows) - 1) * (ROWS_APART + apart) + BANDS_APART + apart
    channel = below - (BANDS_APART + apart) / 2
    if plan.chain:
        below += LINE + FRAME if plan.several else 0
        chain = spread(plan.chain, room, below)
        under = below + tallest(plan.chain) + BEHIND + (BANDS_APART - BEHIND) / 2
        below += tallest(plan.chain) + BANDS_APART + apart + (FRAME + TURN if plan.several else 0)
    else:
        chain, under = (), channel
    tail = spread(plan.tail, room, below)
    return Placed(tuple(beside(plan, rows)), rows, chain, tail, EDGE / 2, wide - EDGE / 2, channel, under)


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


def upright_card(box: Box, way: str, measure: Measure) -> Card:
    """Return the card of a stage with a line for each head."""
    if not box.shares:
        return card(box, way, measure)
    lines = [Text(", ".join(filter(None, [box.sizes, box.note])), box.symbol)]
    lines += [Text(words.SIDE_BY_SIDE)] if box.name == TOGETHER else []
    lines += [Text(f"{share.part} {share.becomes}".strip()) for share in box.shares]
    wide = max(map(measure.line, lines)) + 2 * PAD
    return Card(box.name, box.hue, tuple(lines), (), (), 1, wide, LINE * len(lines) + 7)


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


def shapes_of_card(card: Card) -> Iterator[Shape]:
    """Yield the shapes of a card."""
    hue = COLOURS[card.hue]
    fill, several = mixed(hue, 0.16), card.heads > 1 and not card.shares
    if several:
        yield Rect(card.x + BEHIND, card.y + BEHIND, card.width, card.height, fill, hue)
    if card.shares:
        yield from cells_of(card)
    yield Rect(card.x, card.y, card.width, card.height, "none" if card.shares else fill, hue)
    for place, line in enumerate(card.lines, start=1):
        colour = QUIET if line.quiet else INK
        yield Label(card.x + PAD, card.y + LINE * place + 1, line.text, line.symbol, colour=colour)


def cells_of(card: Card) -> Iterator[Shape]:
    """Yield the cells of a card below its lines, every second one darker."""
    hue, top = COLOURS[card.hue], card.y + LINE * len(card.lines) + 4
    yield Rect(card.x, card.y, card.width, card.height, mixed(hue, 0.16))
    left, more = card.x, (card.width - sum(card.cells)) / len(card.cells)
    for place, (share, wide) in enumerate(zip(card.shares, card.cells, strict=True)):
        if share.becomes:
            yield Rect(left, top, wide + more, card.bottom - top, mixed(hue, 0.45 if place % 2 else 0.3))
        yield Label(left + IN_CELL + more / 2, top + LINE - 3, share.part)
        yield Label(left + IN_CELL + more / 2, top + 2 * LINE - 3, share.becomes)
        left += wide + more


FRAME, TURN = 5, 7
"""Pixels from the frame to what it holds, and between two lines beside each other."""


class Placed(NamedTuple):
    """Cards in their places: sources, rows of queries, keys and values, the chain, the rest.

    `left` and `right` are where lines pass beside them, `channel` where they pass below the rows,
    `under` where below the chain.
    """

    sources: tuple[Card, ...]
    rows: tuple[Card, ...]
    chain: tuple[Card, ...]
    tail: tuple[Card, ...]
    left: float
    right: float
    channel: float
    under: float

    @property
    def cards(self) -> tuple[Card, ...]:
        """All of them."""
        return (*self.sources, *self.rows, *self.chain, *self.tail)


def lines_between(placed: Placed, links: Sequence[Link]) -> Iterator[Shape]:
    """Yield the lines; those of the chain and of the rest lead from card to card."""
    named = {card.name: card for card in placed.cards}
    for link in links:
        yield from line_between(placed, named[link.source], named[link.target])
    for one, other in (*pairwise(placed.chain), *pairwise(placed.tail)):
        yield from rightwards(f"M{one.right:.1f} {other.middle:.1f}", other)


def line_between(placed: Placed, source: Card, target: Card) -> Iterator[Shape]:
    """Yield the line of one link from the first band, or down from the chain."""
    if source in placed.sources and target in placed.rows:
        bend = target.x - 8
        yield from rightwards(f"M{source.right:.1f} {source.middle:.1f}H{bend:.1f}V{target.middle:.1f}", target)
    elif source in placed.sources and target in placed.tail:
        yield from rightwards(f"M{source.x:.1f} {source.middle:.1f}H{placed.left:.1f}V{target.middle:.1f}", target)
    elif source in placed.rows and target in placed.rows:
        yield from rightwards(f"M{source.right:.1f} {target.middle:.1f}", target)
    elif source in placed.rows and target in placed.chain:
        path = (
            f"M{source.right:.1f} {source.middle:.1f}H{placed.right - TURN:.1f}V{placed.channel:.1f}H{placed.left:.1f}"
        )
        yield from rightwards(f"{path}V{target.middle:.1f}", target)
    elif source in placed.rows and placed.chain:
        path = f"M{source.right:.1f} {source.middle:.1f}H{placed.right:.1f}V{placed.under:.1f}"
        yield from downwards(path, target.x + target.width / 2, target)
    elif source in placed.rows:
        yield from rightwards(
            f"{out_of(placed, source)}V{placed.channel:.1f}H{placed.left:.1f}V{target.middle:.1f}", target
        )
    elif source in placed.chain and target in placed.tail:
        path = f"M{source.x + source.width / 2:.1f} {source.bottom:.1f}V{placed.under:.1f}"
        yield from downwards(path, target.x + target.width / 2, target)


def out_of(placed: Placed, source: Card) -> str:
    """Return how a line leaves the rows: down from the lowest, beside the others."""
    if source.middle >= max(card.middle for card in placed.rows):
        return f"M{source.x + 20:.1f} {source.bottom:.1f}"
    return f"M{source.right:.1f} {source.middle:.1f}H{placed.right:.1f}"


def rightwards(path: str, target: Card) -> Iterator[Shape]:
    """Yield a line that ends at the left side of a card."""
    yield Curve(f"{path}H{target.x - 6:.1f}")
    yield Curve(f"M{target.x - 6:.1f} {target.middle - 3:.1f}v6l6-3z", fill=QUIET)


def downwards(path: str, x: float, target: Card) -> Iterator[Shape]:
    """Yield a line that ends at the upper side of a card."""
    yield Curve(f"{path}H{x:.1f}V{target.y - 6:.1f}")
    yield Curve(f"M{x - 3:.1f} {target.y - 6:.1f}h6l-3 6z", fill=QUIET)


def frame_around(placed: Placed, several: str, wide: float) -> Iterator[Shape]:
    """Yield the frame around the chain and the context, and its words, which are so wide."""
    left, top = placed.chain[0].x - FRAME, min(card.y for card in placed.chain) - LINE - FRAME
    right = max(max(card.right for card in placed.chain) + BEHIND, left + wide) + FRAME
    bottom = placed.under + FRAME
    path = f"M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}"
    if placed.tail and placed.tail[0].name == "context":
        inner, last = placed.tail[0].right + FRAME + BEHIND, placed.tail[0].bottom + FRAME + BEHIND
        path += f"H{inner:.1f}V{last:.1f}H{left:.1f}z" if inner < right else f"V{last:.1f}H{left:.1f}z"
    else:
        path += f"H{left:.1f}z"
    yield Curve(path, fill=WASH, edge=RULE)
    yield Label(left + FRAME, top + LINE, several, colour=QUIET)
