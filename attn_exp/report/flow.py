"""The way of one variant as a picture: boxes for its stages, arrows between them, and where each of them stands.

It is plain data, drawn from the shapes of the run itself: by the template `flow.html` in a page, by `flow_sheet` for
files. Lengths are pixels; x grows to the right, y downwards. The last part says how columns become heads, and heads
columns again: `columns 1–2 → head 1`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from attn_exp import forms, registry
from attn_exp.arrays import Array
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem
from attn_exp.report import walk, words
from attn_exp.report.charts.widths import BY_TABLE
from attn_exp.report.charts.widths import width as inches
from attn_exp.report.sentences import spoken
from attn_exp.report.walk import Step

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
        return f"{self.rows} × {self.columns}"

    @property
    def sizes(self) -> str:
        """Its size, and of how many heads."""
        return f"{self.heads} of {self.size}" if self.heads > 1 else self.size

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

    @property
    def framed(self) -> int:
        """How wide the frame is: what is said beside its arrows stands within it."""
        inside = [arrow for arrow in self.arrows if self.frame and self.frame[0] <= arrow.y <= self.frame[1]]
        said = [arrow.x + wide(arrow.label) for arrow in inside if arrow.label and arrow.x < RIGHT]
        return max(180, round(max(said, default=0)) + 6 - 28)


def hue(stage: str) -> str:
    """Return the letter of the colour of a stage, in the picture and at its table."""
    return "w" if stage[:2] in ("W_", "b_") else HUES.get(stage, "s")


def wide(text: str) -> float:
    """Return how wide a text is."""
    return 72 * inches(text, LETTERS)


def fitted(text: str, room: float) -> str:
    """Return a text, shortened to this width."""
    return BY_TABLE.fitted(text, room * 8 / LETTERS / 72)


GAP, NARROW, BROAD = 24, 112, 152
LEFT, MIDDLE, RIGHT, ALONG = 60, 176, 292, 118
"""The middles of the three columns, and of the stages from the scores on."""

INSIDE, BESIDE, BELOW = 100, 98, 155
"""How wide a text may be in a narrow box, beside the arrow to one, and beside an arrow between stages."""

CHAIN = ("scores", "logits", "capped", "masked", "weights", "lse")
COLUMNS = {"q": LEFT, "k": MIDDLE, "v": RIGHT}


def flow(problem: Problem, settled: Settled, trace: Trace, steps: Sequence[Step], places: Mapping[str, str]) -> Flow:
    """Return the picture of one variant; `steps` are its stages, `places` the addresses of their tables."""
    split = splitting(problem, settled, trace)
    rows = [row for row in levels(settled, steps, split) if row]
    boxes = placed([[box._replace(href=places.get(box.stage, "")) for box in row] for row in rows])
    known = {box.name: box for box in boxes}
    joined = tuple(
        link for link in links(problem, settled, steps, known) if link.source in known and link.target in known
    )
    arrows = tuple(arrow(known[link.source], known[link.target], link.label) for link in joined)
    height = max((box.top + box.height for box in boxes), default=0) + 8
    several = split.words[0] if split.heads > 1 else ""
    return Flow(height, boxes, arrows, frame(boxes, split), joined, several)


def levels(settled: Settled, steps: Sequence[Step], split: Splitting) -> Iterator[list[Box]]:
    """Yield the boxes that stand on one level, from the input down to the output."""
    by = {step.stage: step for step in steps}
    yield [source(by[name], middle, settled) for name, middle in sources(by).items()]
    yield [projection(by, name, middle) for name, middle in COLUMNS.items() if f"W_{name}" in by]
    if split.heads > 1:
        yield [
            Box(f"flat {name}", name, name.upper(), by[name].shape[-2], split.flat[name], middle, NARROW, parts=parts)
            for name, middle in COLUMNS.items()
            if name in by and (parts := split.parts.get(name, 1))
        ]
    yield [side(by[name], middle, split, turned(settled, name)) for name, middle in COLUMNS.items() if name in by]
    chain = [box(by[name], BROAD, ALONG) for name in CHAIN if name in by]
    yield from ([box] for box in chain)
    if "context" in by:
        yield [box(by["context"], BROAD, ALONG)]
        if split.heads > 1:
            many, rows, columns = by["context"].shape
            whole = Box(TOGETHER, "context", "C", rows, many * columns, ALONG, BROAD, parts=many)
            yield [written(whole, side_by_side(many, columns), words.SIDE_BY_SIDE, "")]
    if "output" in by:
        mixed = [projection(by, "o", RIGHT)] if "W_o" in by else []
        yield [box(by["output"], BROAD, ALONG), *mixed]


def sources(by: Mapping[str, Step]) -> dict[str, int]:
    """Return where x and the memory stand."""
    if "memory" in by:
        return {"x": LEFT, "memory": (MIDDLE + RIGHT) // 2}
    return {"x": MIDDLE} if "x" in by else {}


def box(step: Step, width: int, middle: int) -> Box:
    """Return the box of a stage."""
    shape = (1, *step.shape)[-2:] if step.stage != "lse" else (step.shape[-1], 1)
    many = step.shape[0] if len(step.shape) == 3 or step.stage == "lse" else 1
    rows, columns = shape
    return Box(step.stage, step.stage, step.explained.symbol, rows, columns, middle, width, heads=many)


def source(step: Step, middle: int, settled: Settled) -> Box:
    """Return the box of x or the memory, which also says which positions are added to it."""
    plain = box(step, NARROW, middle)
    marks = [registry.name_of(position) for position in settled.positions if position.changes_x]
    if not marks:
        return plain
    note = words.WITH_BIAS.format(bias=", ".join(marks))
    return plain._replace(note=note, heading=plain.word, lines=(plain.size, fitted(note, INSIDE)))


def projection(by: Mapping[str, Step], name: str, middle: int) -> Box:
    """Return the box of a matrix that projects, which also says whether a bias is added."""
    bias = by.get(f"b_{name}")
    more = words.WITH_BIAS.format(bias=bias.explained.symbol) if bias else ""
    return box(by[f"W_{name}"], NARROW, middle)._replace(more=more)


def side(step: Step, middle: int, split: Splitting, note: str) -> Box:
    """Return the box of queries, keys or values: with several heads it says how they came about."""
    whole = box(step, NARROW, middle)._replace(note=note)
    step_said = shares(split, step.stage, step.shape)
    return written(whole, step_said, whole.sizes, note) if step_said else whole


def written(whole: Box, step_said: Sequence[Share], heading: str, note: str) -> Box:
    """Return a box with a line for each share below a heading that fits beside its symbol, and a note at the end."""
    room = whole.width - NARROW + INSIDE
    below = list(lines(step_said, room))
    if any(share.line not in below for share in step_said if share.becomes) and whole.name != TOGETHER:
        note = ", ".join(filter(None, [step_said[0].other, note]))
    symbol = 72 * 1.12 * inches(whole.symbol, BOLD) + 4  # bold letters are an eighth wider, and a space follows
    if symbol + wide(heading) > room:
        heading, below = words.COUNT_HEADS.format(count=whole.heads), [whole.size, *below]
    return whole._replace(heading=heading, shares=tuple(step_said), lines=(*below, *filter(None, [fitted(note, room)])))


def placed(rows: Sequence[Sequence[Box]]) -> tuple[Box, ...]:
    """Return the boxes of all levels, each level below the one before."""
    boxes, top = list[Box](), 8
    for row in rows:
        boxes += [box._replace(top=top) for box in row]
        top += max(box.height for box in row) + GAP
    return tuple(boxes)


def links(problem: Problem, settled: Settled, steps: Sequence[Step], known: Mapping[str, Box]) -> Iterator[Link]:
    """Yield what leads to what; ends that are missing are left out by who draws them."""
    notes = {step.stage: step.note for step in steps}
    for name in COLUMNS:
        below = f"flat {name}" if f"flat {name}" in known else name
        source = "memory" if "memory" in known and name != "q" else "x"
        done = ["new rows"] if name == "q" and problem.past else []
        way = ", ".join(filter(None, [*done, turned(settled, name) if below == name else ""]))
        yield Link(source, f"W_{name}")
        yield Link(f"W_{name}", below, way)
        yield Link(f"flat {name}", name, words.COLUMNS)
    last = [name for name in ("q", "k") if name in known]
    wrong = {step.stage for step in steps if step.wrong}
    for stage in (name for name in CHAIN if name in known):
        yield from (Link(name, stage) for name in last[:-1])
        label = settled.mistake if stage in wrong and settled.mistakes else step_said(stage, settled, notes)
        yield Link(last[-1], stage, label) if last else Link("", stage)
        last = [stage]
    yield from (Link(name, "context") for name in [*last, "v"])
    yield Link("context", TOGETHER)
    yield Link(TOGETHER if TOGETHER in known else "context" if "context" in known else "x", "output")
    yield Link("W_o", "output", words.MIXED_BY)


def step_said(stage: str, settled: Settled, notes: Mapping[str, str]) -> str:
    """Return what is done to reach a stage, in a few letters."""
    if stage == "logits":
        return "× c = {multiplier}".format(multiplier=f"{settled.multiplier:.4g}")
    if stage in ("weights", "lse"):
        return settled.rules.normalizer.name if stage == "weights" else ""
    if stage == "scores":
        return "Q Kᵀ" if settled.rules.pairing is None else registry.name_of(settled.rules.pairing)
    return notes.get(stage, "")


def turned(settled: Settled, name: str) -> str:
    """Return what positions do to a side; those that change x are said there."""
    turns = [registry.name_of(position) for position in settled.positions if not position.changes_x]
    return "" if name == "v" else ", ".join(turns)


def arrow(source: Box, target: Box, label: str) -> Arrow:
    """Return the line between two boxes: down, or round a corner into the side of what stands below or beside."""
    start, end, side = source.top + source.height, target.top, target.middle + target.width // 2
    level, edge = target.top + TALL // 2, side + (4 if target.heads > 1 else 0)
    if source.top == target.top or (target.stage == "context" and source.left > side):
        beside = source.top == target.top
        path = f"M{source.left} {level}H{edge + 6}" if beside else f"M{source.middle} {start}V{level}H{edge + 6}"
        return Arrow(path, f"M{edge + 6} {level - 3}v6l-6-3z", label, edge + 12, level - 6)
    aside = (source.middle > target.middle) - (source.middle < target.middle)
    bend, into = (start + end) // 2, target.middle + 12 * aside
    path = f"M{source.middle} {start}C{source.middle} {bend} {into} {bend} {into} {end - 6}"
    straight = path if aside else f"M{source.middle} {start}V{end - 6}"
    step_said = fitted(label, BESIDE if target.width == NARROW else BELOW)
    return Arrow(straight, f"M{into - 3} {end - 6}h6l-3 6z", step_said, max(source.middle, into) + 9, end - 8)


def frame(boxes: Sequence[Box], split: Splitting) -> tuple[int, int, str] | None:
    """Return where the work of each head begins and ends, where there are several."""
    inside = [box for box in boxes if box.stage in (*CHAIN, "context") and box.name != TOGETHER]
    if split.heads == 1 or not inside:
        return None
    top, bottom = inside[0].top - GAP + 3, inside[-1].top + inside[-1].height + 8
    return top, bottom, next((text for text in split.words if wide(text) <= bottom - top), split.words[-1])


MOST = 4
"""More heads than these are not written out: the first two, and the last."""


class Splitting(NamedTuple):
    """How many `heads` there are, how many columns `flat` each side has before, into how many `parts` these part.

    Of the parts of k and v, `shared` heads are made: the means of `pooled` parts each, or the first parts. `tiled`
    heads take turns; `words` say what is done in each, the longest first. What is not `known` is not written out.
    """

    heads: int
    flat: Mapping[str, int]
    parts: Mapping[str, int]
    shared: int
    pooled: int
    tiled: bool
    known: bool
    words: tuple[str, ...]


def splitting(problem: Problem, settled: Settled, trace: Trace) -> Splitting:
    """Return how a variant splits its sides into heads; what a mistake or own code does instead is not known."""
    sides = {"q": problem.q, "k": problem.k, "v": problem.v}
    traced = next((side for side in (trace.q, trace.weights, trace.context) if side is not None), None)
    heads = 1 if traced is None else len(traced)
    share = settled.heads
    parts = {"q": share.query, "k": share.given, "v": share.given}
    known = not settled.mistakes and not forms.is_own(settled.form)
    flat = {name: side.shape[-1] for name, side in sides.items() if side is not None}
    pooled = share.given // share.shared if share.pool == "mean" else 1
    return Splitting(heads, flat, parts, share.shared, pooled, settled.tiled, known, several(heads, settled))


def parted(step: Step, split: Splitting) -> Step:
    """Return a projection with the heads written below its columns; any other step as it is."""
    name = step.stage[2:]
    if not walk.is_projection(step) or split.heads == 1 or not split.known or name not in split.parts:
        return step
    shown, width = min(walk.SIDE, split.flat[name]), split.flat[name] // split.parts[name]
    owners = [(owner(split, name, part), min(width, shown - part * width)) for part in range(split.parts[name])]
    parts = tuple((whom, count) for whom, count in owners if count > 0)
    return step._replace(tables=tuple(table._replace(parts=parts) for table in step.tables))


def by_head(step: Step, split: Splitting, array: Array, most: int) -> Step:
    """Return a projection of more than `most` columns with a corner for each head: the first columns that it reads."""
    name, columns = step.stage[2:], array.shape[-1]
    if not step.tables[0].parts or columns <= most or split.pooled > 1:
        return step
    width = columns // split.parts[name]
    starts = range(0, columns, width)
    corners = np.stack([np.atleast_2d(array)[: walk.SIDE, at : at + min(width, walk.SIDE)] for at in starts])
    return step._replace(corners=corners, owners=tuple((owner(split, name, at // width), at) for at in starts))


def rows_by_head(step: Step, heads: int, array: Array, most: int) -> Step:
    """Return W_o of more than `most` rows with a corner for each head: the first rows that its context meets."""
    if heads == 1 or len(array) <= most or len(array) % heads:
        return step
    width = len(array) // heads
    corners = np.stack([array[at : at + min(width, walk.SIDE), : walk.SIDE] for at in range(0, len(array), width)])
    return step._replace(corners=corners, head_rows=width)


def owner(split: Splitting, name: str, part: int) -> str:
    """Say which heads read a part of the columns of a side: `heads 1–2`."""
    if name == "q":
        return words.HEAD.format(number=part + 1)
    shared, group = split.shared, part // split.pooled
    if group >= shared:
        return "unused"
    many = split.heads // shared
    heads = range(group, split.heads, shared) if split.tiled else range(group * many, (group + 1) * many)
    numbers = [head + 1 for head in heads]
    if len(numbers) == 1:
        return words.HEAD.format(number=numbers[0])
    all_of_them = ", ".join(map(str, numbers)) if split.tiled else counted(numbers[0], numbers[-1])
    return f"heads {all_of_them}"


def several(heads: int, settled: Settled) -> tuple[str, ...]:
    """Say that this is done in each head, and how many heads read the same keys and values; then in fewer words."""
    each = f"in each of {heads} heads"
    share = settled.heads.query // settled.heads.shared
    if share > 1:
        more = "{each}, one K and V for all" if settled.heads.shared == 1 else "{each}, {count} share a K and V"
        return more.format(each=each, count=share), each, words.COUNT_HEADS.format(count=heads)
    return each, words.COUNT_HEADS.format(count=heads)


def shares(split: Splitting, name: str, shape: Sequence[int]) -> tuple[Share, ...]:
    """Return which columns of a side become which head."""
    if split.heads == 1 or not split.known or len(shape) != 3:
        return ()
    pooled = 1 if name == "q" else split.pooled
    heads, width = shape[0], pooled * split.flat[name] // split.parts[name]
    into = "mean → {head}" if pooled > 1 else "→ head {head}"
    return shortened(
        [
            Share(
                columns(head % split.shared if split.tiled and name != "q" else head, width),
                into.format(head=head + 1),
                f"→ {head + 1}",
                "means" if pooled > 1 else "",
            )
            for head in chosen(heads)
        ],
        heads,
    )


def side_by_side(heads: int, width: int) -> tuple[Share, ...]:
    """Return which columns each head becomes."""
    parts = [f"→ {columns(head, width)}" for head in chosen(heads)]
    names = [words.HEAD.format(number=head + 1) for head in chosen(heads)]
    return shortened([Share(name, part, part) for name, part in zip(names, parts, strict=True)], heads)


def lines(said: Sequence[Share], room: float) -> tuple[str, ...]:
    """Return a line for each share, in fewer letters where one would leave the room."""
    if all(wide(share.line) <= room for share in said):
        return tuple(share.line.strip() for share in said)
    return tuple(f"{share.part} {share.short}".strip() for share in said)


def chosen(heads: int) -> list[int]:
    """Return the heads that are written out."""
    return list(range(heads)) if heads <= MOST else [0, 1, heads - 1]


def shortened(said: Sequence[Share], heads: int) -> tuple[Share, ...]:
    """Return shares with three dots where heads are left out."""
    return tuple(said) if heads <= MOST else (*said[:2], GAP_IN_SHARES, said[-1])


def columns(part: int, width: int) -> str:
    """Return the numbers of the columns of a part, from 1: `3–4`."""
    first = part * width + 1
    return str(first) if width == 1 else counted(first, first + width - 1)


def counted(first: int, last: int) -> str:
    """Return numbers from the first to the last: `3–4`."""
    return f"{first}–{last}"
