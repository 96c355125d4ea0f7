"""A diagram of the computation of one variant: boxes for its stages, arrows between them, and their positions.

The diagram is plain data, made from the shapes of the run; the page and the figure `flow` draw it. Coordinates are in
pixels from the upper left corner. The last part of this file labels the columns that become each head: `1–2 → head 1`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from attn_exp import forms, registry
from attn_exp.arrays import Array
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem
from attn_exp.report import walk
from attn_exp.report.charts import element
from attn_exp.report.charts.chart import INK, PAPER, QUIET, Path, Rect, Shape, Text, fitted
from attn_exp.report.sentences import spoken
from attn_exp.report.walk import Step

LETTERS, LINE, TALL = 11, 14, 40
"""Font size, line height, and height of a box with two lines of text."""

WIDTH, GAP, NARROW, BROAD = 352, 24, 112, 152
LEFT, MIDDLE, RIGHT, ALONG = 60, 176, 292, 118
"""Horizontal centres of the three columns, and of the stages from the scores on."""

INSIDE, BESIDE, BELOW, FRAME = 100, 98, 150, 252
"""Maximum width of text in a narrow box, next to an arrow into it, and next to an arrow between stages; and the width
of the frame around the computation in each head."""

CHAIN = ("scores", "logits", "capped", "masked", "weights", "lse")
COLUMNS = {"q": LEFT, "k": MIDDLE, "v": RIGHT}

TOGETHER = "together"
"""The name of the box that shows the concatenated heads."""

HUES = {"x": "x", "memory": "x", "q": "q", "k": "k", "v": "v", "weights": "a", "context": "c", "output": "y"}
"""The key in `COLOURS` of each stage; projections use w, and all stages between queries and weights use s."""

COLOURS = {
    "x": "#66717d", "w": "#66717d", "q": "#0072b2", "k": "#d55e00", "v": "#009e73",
    "s": "#b0579a", "a": "#d99a00", "c": "#2f9fd8", "y": "#7a5af0",
}  # fmt: skip
"""The colours in files; on a page, the style sheet sets them and blends them with the background."""

RULE, WASH = "#b6bec7", "#f4f6f8"
"""The border and the fill of the frame around the computation in each head."""


class Box(NamedTuple):
    """A stage: its symbol and a word next to it, its shape, and the positions of its centre and top.

    `heads` is the number of matrices of this shape, `parts` the number of heads in the columns of a matrix. `lines`
    replace the shape below the word. `href` is the address of the table of the stage.
    """

    name: str
    stage: str
    symbol: str
    word: str
    rows: int
    columns: int
    middle: int
    width: int
    heads: int = 1
    parts: int = 1
    lines: tuple[str, ...] = ()
    href: str = ""
    top: int = 0

    @property
    def hue(self) -> str:
        return hue(self.stage)

    @property
    def size(self) -> str:
        return f"{self.rows} × {self.columns}"

    @property
    def left(self) -> int:
        return self.middle - self.width // 2

    @property
    def right(self) -> int:
        return self.left + self.width

    @property
    def height(self) -> int:
        return LINE * (len(self.lines) + 1) + 6 if self.lines else TALL

    @property
    def bottom(self) -> int:
        return self.top + self.height

    @property
    def svg(self) -> Markup:
        return Markup("".join(element(shape, alone=False) for shape in box_shapes(self)))


Link = tuple[str, str, str]
"""The source, the target and the label of an arrow."""


class Flow(NamedTuple):
    """A whole diagram: its boxes, and the shapes behind them (arrows, labels and a frame)."""

    height: int
    boxes: tuple[Box, ...]
    behind: tuple[Shape, ...]
    width: int = WIDTH

    @property
    def svg(self) -> Markup:
        """The shapes behind the boxes, as SVG."""
        return Markup("".join(element(shape, alone=False) for shape in self.behind))

    @property
    def shapes(self) -> list[Shape]:
        """All shapes, background first."""
        return [*self.behind, *(shape for box in self.boxes for shape in box_shapes(box))]


def hue(stage: str) -> str:
    return "w" if stage[:2] in ("W_", "b_") else HUES.get(stage, "s")


def shorten(text: str, room: float) -> str:
    return fitted(text, room / 72, LETTERS)


def flow(problem: Problem, settled: Settled, trace: Trace, steps: Sequence[Step], places: Mapping[str, str]) -> Flow:
    """Return the diagram of one variant; `steps` are its stages, `places` the addresses of their tables."""
    split = splitting(problem, settled, trace)
    boxes, top = list[Box](), 8
    for row in filter(None, box_levels(settled, steps, split)):
        boxes += [box._replace(top=top, href=places.get(box.stage, "")) for box in row]
        top += max(box.height for box in row) + GAP
    known = {box.name: box for box in boxes}
    arrows = [
        shape
        for source, target, label in links(problem, settled, steps, known)
        if source in known and target in known
        for shape in arrow_shapes(known[source], known[target], label)
    ]
    return Flow(top - GAP + 8, tuple(boxes), (*frame_shapes(boxes, split), *arrows))


def box_levels(settled: Settled, steps: Sequence[Step], split: Splitting) -> Iterator[list[Box]]:
    by = {step.stage: step for step in steps}
    places = {"x": LEFT, "memory": (MIDDLE + RIGHT) // 2} if "memory" in by else {"x": MIDDLE}
    yield [input_box(by[name], middle, settled) for name, middle in places.items() if name in by]
    yield [projection_box(by, name, middle) for name, middle in COLUMNS.items() if f"W_{name}" in by]
    sides = {name: middle for name, middle in COLUMNS.items() if name in by}
    if split.heads > 1:
        yield [
            stage_box(by[name], NARROW, middle)._replace(
                name=f"flat {name}",
                symbol=name.upper(),
                columns=split.flat[name],
                heads=1,
                parts=split.parts.get(name, 1),
            )
            for name, middle in sides.items()
        ]
    yield [
        side_box(stage_box(by[name], NARROW, middle), split, rotations(settled, name)) for name, middle in sides.items()
    ]
    yield from ([stage_box(by[name], BROAD, ALONG)] for name in (*CHAIN, "context") if name in by)
    if "context" in by and split.heads > 1:
        yield [concatenated_box(stage_box(by["context"], BROAD, ALONG))]
    if "output" in by:
        yield [stage_box(by["output"], BROAD, ALONG), *([projection_box(by, "o", RIGHT)] if "W_o" in by else [])]


def stage_box(step: Step, width: int, middle: int) -> Box:
    *heads, rows, columns = (1, *step.shape) if step.stage != "lse" else (*step.shape, 1)
    symbol, many = step.explained.symbol, heads[-1] if heads else 1
    return Box(step.stage, step.stage, symbol, spoken(step.stage), rows, columns, middle, width, heads=many)


def input_box(step: Step, middle: int, settled: Settled) -> Box:
    plain = stage_box(step, NARROW, middle)
    marks = [registry.name_of(position) for position in settled.positions if position.changes_x]
    if not marks:
        return plain
    note = shorten(f"+ {', '.join(marks)}", INSIDE)
    return plain._replace(lines=(plain.size, note))


def projection_box(by: Mapping[str, Step], name: str, middle: int) -> Box:
    plain, bias = stage_box(by[f"W_{name}"], NARROW, middle), by.get(f"b_{name}")
    return plain._replace(word=f"+ {bias.explained.symbol}") if bias else plain


def side_box(plain: Box, split: Splitting, note: str) -> Box:
    if plain.heads == 1 or not split.known:
        return plain
    name = plain.stage
    pooled = 1 if name == "q" else split.pooled
    width, turn = pooled * split.flat[name] // split.parts[name], split.tiled and name != "q"
    parts = {head: format_columns(head % split.shared if turn else head, width) for head in range(plain.heads)}
    made = "mean →" if pooled > 1 else "→" if plain.heads > 8 else "→ head"
    lines = [f"{part} {made} {head + 1}" for head, part in parts.items()]
    below = [*abbreviate_lines(lines), *filter(None, [note])]
    return plain._replace(
        word=shorten(f"{plain.heads} of {plain.size}", INSIDE - 12),
        lines=tuple(shorten(line, INSIDE) for line in below),
    )


def concatenated_box(context: Box) -> Box:
    many, width = context.heads, context.columns
    lines = [f"head {head + 1} → {format_columns(head, width)}" for head in range(many)]
    return context._replace(
        name=TOGETHER, symbol="C", word="side by side", columns=many * width,
        heads=1, parts=many, lines=tuple(abbreviate_lines(lines)),
    )  # fmt: skip


def abbreviate_lines(lines: Sequence[str]) -> list[str]:
    return list(lines) if len(lines) <= 4 else [*lines[:2], "…", lines[-1]]


def format_columns(part: int, width: int) -> str:
    """Format the columns of a part as a range, counted from 1: `3–4`."""
    first = part * width + 1
    return str(first) if width == 1 else f"{first}–{first + width - 1}"


def links(problem: Problem, settled: Settled, steps: Sequence[Step], known: Mapping[str, Box]) -> Iterator[Link]:
    """Yield the arrows between boxes; the caller drops arrows from or to a missing box."""
    for name in COLUMNS:
        below = f"flat {name}" if f"flat {name}" in known else name
        source = "memory" if "memory" in known and name != "q" else "x"
        new = "new rows" if name == "q" and problem.past else ""
        yield source, f"W_{name}", ""
        yield f"W_{name}", below, ", ".join(filter(None, [new, rotations(settled, name) if below == name else ""]))
        yield f"flat {name}", name, "columns"
    last = [name for name in ("q", "k") if name in known]
    for step in (step for step in steps if step.stage in CHAIN):
        label = settled.mistake if step.wrong and settled.mistakes else operation_label(step, settled)
        yield from ((name, step.stage, label if name == last[-1] else "") for name in last)
        last = [step.stage]
    yield from ((name, "context", "") for name in [*last, "v"])
    yield "context", TOGETHER, ""
    yield next((name for name in (TOGETHER, "context") if name in known), "x"), "output", ""
    yield "W_o", "output", "×"


def operation_label(step: Step, settled: Settled) -> str:
    rules = settled.rules
    said = {
        "scores": "Q Kᵀ" if rules.pairing is None else registry.name_of(rules.pairing),
        "logits": f"× c = {settled.multiplier:.4g}",
        "weights": rules.normalizer.name,
        "lse": "",
    }
    return said.get(step.stage, step.note)


def rotations(settled: Settled, name: str) -> str:
    """Name the position encodings that rotate q or k; the box of x names those that are added to x."""
    turns = [registry.name_of(position) for position in settled.positions if not position.changes_x]
    return "" if name == "v" else ", ".join(turns)


def arrow_shapes(source: Box, target: Box, label: str) -> Iterator[Shape]:
    start, edge = source.bottom, target.right + (4 if target.heads > 1 else 0)
    if source.top == target.top or (target.stage == "context" and source.left > target.right):
        level = target.top + TALL // 2
        corner = (
            [(source.left, level)] if source.top == target.top else [(source.middle, start), (source.middle, level)]
        )
        yield from line_with_tip(line_path(*corner, (edge + 6, level)), f"M{edge + 6} {level - 3}l0 6l-6 -3z")
        x, y, said = edge + 12, level - 6, label
    else:
        end, aside = target.top, (source.middle > target.middle) - (source.middle < target.middle)
        bend, into = (start + end) // 2, target.middle + 12 * aside
        path = f"M{source.middle} {start}C{source.middle} {bend} {into} {bend} {into} {end - 6}"
        straight = path if aside else line_path((source.middle, start), (source.middle, end - 6))
        yield from line_with_tip(straight, f"M{into - 3} {end - 6}l6 0l-3 6z")
        x, y = max(source.middle, into) + 9, end - 8
        said = shorten(label, BESIDE if target.width == NARROW else BELOW)
    if label:
        yield Text(x, y, said, LETTERS, colour=QUIET)


def line_path(*points: tuple[float, float]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def line_with_tip(path: str, tip: str) -> Iterator[Path]:
    yield Path(path, stroke=QUIET, line=1.3)
    yield Path(tip, QUIET)


def frame_shapes(boxes: Sequence[Box], split: Splitting) -> Iterator[Shape]:
    inside = [box for box in boxes if box.stage in (*CHAIN, "context") and box.name != TOGETHER]
    if split.heads > 1 and inside:
        top, bottom = inside[0].top - GAP + 3, inside[-1].bottom + 8
        yield Rect(28, top, FRAME, bottom - top, WASH, RULE, 1, (4, 3), 5)
        yield Text(18, (top + bottom) / 2, split.said, LETTERS, "center", turned=True, colour=QUIET)


def box_shapes(box: Box) -> Iterator[Shape]:
    colour, x, y = COLOURS[box.hue], box.left, box.top
    card = Rect(x, y, box.width, box.height, blend_with_white(colour, 0.16), colour, 1.5, radius=5)
    if box.heads > 1 and not box.lines:
        yield card._replace(x=x + 4, y=y + 4)
    yield card
    lines = box.lines or (box.size,)
    left = 7 if box.lines or len(box.size) > 9 else 40
    if left == 40:
        yield from icon_paths(box)
    heading = Text(x + left, y + LINE + 1, box.word, LETTERS, colour=INK, symbol=box.symbol)
    yield heading
    yield from (
        Text(x + left, heading.y + LINE * place, text, LETTERS, colour=INK) for place, text in enumerate(lines, start=1)
    )


def icon_paths(box: Box) -> Iterator[Path]:
    unit = min(28 / box.rows, 28 / box.columns, 7)
    unit = int(unit) if unit >= 1 else unit
    across, down = max(int(unit * box.columns), 3), max(int(unit * box.rows), 3)
    x, y, colour = box.left + 7, box.top + (box.height - down) // 2, COLOURS[box.hue]
    cells = f"M{x} {y}l{across} 0l0 {down}l{-across} 0z"
    if unit > 2:
        cells += "".join(f"M{x} {y + row * unit}l{across} 0" for row in range(1, box.rows))
        cells += "".join(f"M{x + column * unit} {y}l0 {down}" for column in range(1, box.columns))
    yield Path(cells, blend_with_white(colour, 0.55), PAPER, 1)
    if 1 < box.parts <= 16 and across >= box.parts:
        part = across // box.parts
        odd = (f"M{x + place * part} {y}l{part} 0l0 {down}l{-part} 0z" for place in range(1, box.parts, 2))
        yield Path("".join(odd), colour, opacity=0.6)


def blend_with_white(colour: str, share: float) -> str:
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(255 + share * (part - 255)):02x}" for part in parts)


class Splitting(NamedTuple):
    """How q, k and v are split into `heads` heads: the `flat` columns of each, and the `parts` they are cut into.

    Keys and values have `shared` heads: each is the mean of `pooled` parts, or the first parts are used. If
    `tiled`, query heads use them in turn. `said` is the label of the frame. If not `known`, the diagram does not show
    which columns belong to which head.
    """

    heads: int
    flat: Mapping[str, int]
    parts: Mapping[str, int]
    shared: int
    pooled: int
    tiled: bool
    known: bool
    said: str


def splitting(problem: Problem, settled: Settled, trace: Trace) -> Splitting:
    """Return how a variant splits q, k and v into heads, which is not `known` for a mistake or the user's own code."""
    sides = {"q": problem.q, "k": problem.k, "v": problem.v}
    traced = next((side for side in (trace.q, trace.weights, trace.context) if side is not None), None)
    heads, share = 1 if traced is None else len(traced), settled.heads
    parts = {"q": share.query, "k": share.given, "v": share.given}
    known = not settled.mistakes and not forms.is_own(settled.form)
    flat = {name: side.shape[-1] for name, side in sides.items() if side is not None}
    pooled = share.given // share.shared if share.pool == "mean" else 1
    alike = share.query // share.shared
    said = f"in each of {heads} heads{f', {alike} share a K and V' if alike > 1 else ''}"
    return Splitting(heads, flat, parts, share.shared, pooled, settled.tiled, known, said)


def label_parts(step: Step, split: Splitting) -> Step:
    name = step.stage[2:]
    if not walk.is_projection(step) or split.heads == 1 or not split.known or name not in split.parts:
        return step
    shown, width = min(walk.SIDE, split.flat[name]), split.flat[name] // split.parts[name]
    owners = [(name_heads(split, name, part), min(width, shown - part * width)) for part in range(split.parts[name])]
    parts = tuple((whom, count) for whom, count in owners if count > 0)
    return step._replace(tables=tuple(table._replace(parts=parts) for table in step.tables))


def by_head(step: Step, split: Splitting, array: Array, most: int) -> Step:
    """If a projection has more than `most` columns, show the first columns of each head, not just of the first head."""
    name, columns = step.stage[2:], array.shape[-1]
    if not step.tables[0].parts or columns <= most or split.pooled > 1:
        return step
    width = columns // split.parts[name]
    starts = range(0, columns, width)
    corners = np.stack([np.atleast_2d(array)[: walk.SIDE, at : at + min(width, walk.SIDE)] for at in starts])
    return step._replace(heads=corners, owners=tuple((name_heads(split, name, at // width), at) for at in starts))


def rows_by_head(step: Step, heads: int, array: Array, most: int) -> Step:
    """If W_o has more than `most` rows, show the first rows of each head, not just of the first head."""
    if heads == 1 or len(array) <= most or len(array) % heads:
        return step
    width = len(array) // heads
    corners = np.stack([array[at : at + min(width, walk.SIDE), : walk.SIDE] for at in range(0, len(array), width)])
    return step._replace(heads=corners, head_rows=width)


def name_heads(split: Splitting, name: str, part: int) -> str:
    """Name the heads that use one part of the columns of q, k or v: `heads 1–2`."""
    group, many = (part, 1) if name == "q" else (part // split.pooled, split.heads // split.shared)
    if name != "q" and group >= split.shared:
        return "unused"
    if many == 1:
        return f"head {group + 1}"
    if split.tiled:
        return f"heads {', '.join(str(head + 1) for head in range(group, split.heads, split.shared))}"
    return f"heads {format_columns(group, many)}"
