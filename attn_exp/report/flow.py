"""The way of one variant as a picture: boxes for its stages, arrows between them, and where each of them stands.

It is plain data, drawn from the shapes of the run itself. Lengths are pixels; x grows to the right, y downwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attn_exp import registry
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem
from attn_exp.report import words
from attn_exp.report.flow_boxes import TALL, TOGETHER, Arrow, Box, Flow, Link, Share, fitted, wide, wide_symbol
from attn_exp.report.flow_heads import Splitting, lines, shares, side_by_side, splitting
from attn_exp.report.walk import Step

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
            yield [side_by_side_box(by["context"])]
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
    said = shares(split, step.stage, step.shape)
    return written(whole, said, whole.sizes, note) if said else whole


def side_by_side_box(step: Step) -> Box:
    """Return the box of the heads after they were put side by side again."""
    many, rows, columns = step.shape
    whole = Box(TOGETHER, "context", "C", rows, many * columns, ALONG, BROAD, parts=many)
    return written(whole, side_by_side(many, columns), words.SIDE_BY_SIDE, "")


def written(whole: Box, said: Sequence[Share], heading: str, note: str) -> Box:
    """Return a box with a line for each share below a heading that fits beside its symbol, and a note at the end."""
    room = whole.width - NARROW + INSIDE
    below = list(lines(said, room))
    if any(share.line not in below for share in said if share.becomes) and whole.name != TOGETHER:
        note = ", ".join(filter(None, [said[0].other, note]))
    if wide_symbol(whole.symbol) + wide(heading) > room:
        heading, below = words.COUNT_HEADS.format(count=whole.heads), [whole.size, *below]
    return whole._replace(heading=heading, shares=tuple(said), lines=(*below, *filter(None, [fitted(note, room)])))


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
        done = [words.NEW_ROWS] if name == "q" and problem.past else []
        way = ", ".join(filter(None, [*done, turned(settled, name) if below == name else ""]))
        yield Link(source, f"W_{name}")
        yield Link(f"W_{name}", below, way)
        yield Link(f"flat {name}", name, words.COLUMNS)
    last = [name for name in ("q", "k") if name in known]
    for stage in (name for name in CHAIN if name in known):
        yield from (Link(name, stage) for name in last[:-1])
        yield Link(last[-1], stage, said(stage, settled, notes)) if last else Link("", stage)
        last = [stage]
    yield from (Link(name, "context") for name in [*last, "v"])
    yield Link("context", TOGETHER)
    yield Link(TOGETHER if TOGETHER in known else "context" if "context" in known else "x", "output")
    yield Link("W_o", "output", words.MIXED_BY)


def said(stage: str, settled: Settled, notes: Mapping[str, str]) -> str:
    """Return what is done to reach a stage, in a few letters."""
    if stage == "logits":
        return words.SCALED_BY.format(multiplier=f"{settled.multiplier:.4g}")
    if stage in ("weights", "lse"):
        return settled.rules.normalizer.name if stage == "weights" else ""
    if stage == "scores":
        return words.Q_TIMES_K if settled.rules.pairing is None else registry.name_of(settled.rules.pairing)
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
    said = fitted(label, BESIDE if target.width == NARROW else BELOW)
    return Arrow(straight, f"M{into - 3} {end - 6}h6l-3 6z", said, max(source.middle, into) + 9, end - 8)


def frame(boxes: Sequence[Box], split: Splitting) -> tuple[int, int, str] | None:
    """Return where the work of each head begins and ends, where there are several."""
    inside = [box for box in boxes if box.stage in (*CHAIN, "context") and box.name != TOGETHER]
    if split.heads == 1 or not inside:
        return None
    top, bottom = inside[0].top - 8, inside[-1].top + inside[-1].height + 8
    return top, bottom, next((text for text in split.words if wide(text) <= bottom - top), split.words[-1])
