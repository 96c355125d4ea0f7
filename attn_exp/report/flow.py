"""The way of one variant as a picture: boxes for its stages, arrows between them, and where each of them stands.

It is plain data, drawn from the shapes of the run itself. Lengths are pixels; x grows to the right, y downwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from attn_exp import registry
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem
from attn_exp.report.explain import spoken
from attn_exp.report.flow_heads import Splitting, lines, side_by_side, splitting
from attn_exp.report.walk import Step

WIDTH, GAP, TALL, LINE = 352, 24, 40, 14
NARROW, BROAD = 112, 152
LEFT, MIDDLE, RIGHT, ALONG = 60, 176, 292, 118
"""The middles of the three columns, and of the stages from the scores on."""

CHAIN = ("scores", "logits", "capped", "masked", "weights", "lse")
COLUMNS = {"q": LEFT, "k": MIDDLE, "v": RIGHT}
HUES = {"x": "x", "memory": "x", "q": "q", "k": "k", "v": "v", "weights": "a", "context": "c", "output": "y"}
"""Which of the colours a stage has; projections have w, all between queries and weights s."""


class Box(NamedTuple):
    """A stage: its symbol and name, its size in words and in numbers, and where its middle and its top are.

    `href` leads to its table; `heads` is how many matrices of this size there are, `parts` into how many heads its
    columns part, `lines` says how.
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
    def word(self) -> str:
        """What it is, in a word."""
        return "side by side" if self.name == "together" else spoken({"x": "x"}.get(self.stage, self.stage))

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


class Flow(NamedTuple):
    """A whole picture; `frame` is the top and the bottom of what is done in each head, and the words beside it."""

    height: int
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    frame: tuple[int, int, str] | None
    width: int = WIDTH


class Link(NamedTuple):
    """Which box leads to which, and what happens on the way."""

    source: str
    target: str
    label: str = ""


def hue(stage: str) -> str:
    """Return the letter of the colour of a stage, in the picture and at its table."""
    return "w" if stage[:2] in ("W_", "b_") else HUES.get(stage, "s")


def flow(problem: Problem, settled: Settled, trace: Trace, steps: Sequence[Step], places: Mapping[str, str]) -> Flow:
    """Return the picture of one variant; `steps` are its stages, `places` the addresses of their tables."""
    split = splitting(problem, settled, trace)
    rows = [row for row in levels(settled, steps, split) if row]
    boxes = placed([[box._replace(href=places.get(box.stage, "")) for box in row] for row in rows])
    known = {box.name: box for box in boxes}
    arrows = tuple(
        arrow(known[link.source], known[link.target], link.label)
        for link in links(problem, settled, steps, known)
        if link.source in known and link.target in known
    )
    return Flow(max((box.top + box.height for box in boxes), default=0) + 8, boxes, arrows, frame(boxes, split))


def levels(settled: Settled, steps: Sequence[Step], split: Splitting) -> Iterator[list[Box]]:
    """Yield the boxes that stand on one level, from the input down to the output."""
    by = {step.stage: step for step in steps}
    yield [box(by[name], NARROW, middle) for name, middle in sources(by).items()]
    yield [box(by[f"W_{name}"], NARROW, middle) for name, middle in COLUMNS.items() if f"W_{name}" in by]
    if split.heads > 1:
        yield [
            Box(f"flat {name}", name, name.upper(), by[name].shape[-2], split.flat[name], middle, NARROW, parts=parts)
            for name, middle in COLUMNS.items()
            if name in by and (parts := split.parts.get(name, 1))
        ]
    yield [
        box(by[name], NARROW, middle, lines(split, name, by[name].shape, clipped(turned(settled, name), 16)))
        for name, middle in COLUMNS.items()
        if name in by
    ]
    chain = [box(by[name], BROAD, ALONG) for name in CHAIN if name in by]
    yield from ([box] for box in chain)
    if "context" in by:
        yield [box(by["context"], BROAD, ALONG)]
        if split.heads > 1:
            yield [side_by_side_box(by["context"], split)]
    if "output" in by:
        mixed = [box(by["W_o"], NARROW, RIGHT)] if "W_o" in by else []
        yield [box(by["output"], BROAD, ALONG), *mixed]


def sources(by: Mapping[str, Step]) -> dict[str, int]:
    """Return where x and the memory stand."""
    if "memory" in by:
        return {"x": LEFT, "memory": (MIDDLE + RIGHT) // 2}
    return {"x": MIDDLE} if "x" in by else {}


def box(step: Step, width: int, middle: int, said: tuple[str, ...] = ()) -> Box:
    """Return the box of a stage."""
    shape = (1, *step.shape)[-2:] if step.stage != "lse" else (step.shape[-1], 1)
    many = step.shape[0] if len(step.shape) == 3 or step.stage == "lse" else 1
    rows, columns = shape
    symbol = step.explained.symbol
    return Box(step.stage, step.stage, symbol, rows, columns, middle, width, heads=many, lines=said)


def side_by_side_box(step: Step, split: Splitting) -> Box:
    """Return the box of the heads after they were put side by side again."""
    many, rows, columns = step.shape
    said = side_by_side(many, columns)
    return Box("together", "context", "C", rows, many * columns, ALONG, BROAD, parts=many, lines=said)


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
        yield Link(source, f"W_{name}")
        yield Link(
            f"W_{name}",
            below,
            clipped(", ".join(filter(None, [*done, turned(settled, name) if below == name else ""])), 18),
        )
        yield Link(f"flat {name}", name, "columns")
    last = [name for name in ("q", "k") if name in known]
    for stage in (name for name in CHAIN if name in known):
        yield from (Link(name, stage) for name in last[:-1])
        yield Link(last[-1], stage, said(stage, settled, notes)) if last else Link("", stage)
        last = [stage]
    yield from (Link(name, "context") for name in [*last, "v"])
    yield Link("context", "together")
    yield Link("together" if "together" in known else "context" if "context" in known else "x", "output")
    yield Link("W_o", "output", "×")


def said(stage: str, settled: Settled, notes: Mapping[str, str]) -> str:
    """Return what is done to reach a stage, in a few letters."""
    if stage == "logits":
        return f"× c = {settled.multiplier:.4g}"
    if stage in ("weights", "lse"):
        return settled.rules.normalizer.name if stage == "weights" else ""
    return "Q Kᵀ" if stage == "scores" else clipped(notes.get(stage, ""), 26)


def turned(settled: Settled, name: str) -> str:
    """Return what positions do to a side."""
    return "" if name == "v" else ", ".join(registry.name_of(position) for position in settled.positions)


def clipped(text: str, most: int) -> str:
    """Return a text of at most so many letters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


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
    return Arrow(straight, f"M{into - 3} {end - 6}h6l-3 6z", label, max(source.middle, into) + 9, end - 8)


def frame(boxes: Sequence[Box], split: Splitting) -> tuple[int, int, str] | None:
    """Return where the work of each head begins and ends, where there are several."""
    inside = [box for box in boxes if box.stage in (*CHAIN, "context") and box.name != "together"]
    if split.heads == 1 or not inside:
        return None
    return inside[0].top - 8, inside[-1].top + inside[-1].height + 8, split.words
