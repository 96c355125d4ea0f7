"""A diagram of the computation of one variant: boxes for its stages, arrows between them, and their positions.

The diagram is plain data; the page and the figure `flow` draw it. `box_rows` lists the boxes from top to bottom,
`lay_out_flow` places them, and `list_links` names the arrows. Coordinates are in pixels from the upper left corner. The
last part of this file is about the columns of a projection that become one head, such as `1–2 → head 1`.
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
from attn_exp.report.charts.chart import INK, PAPER, QUIET, Path, Rect, Shape, Text, fit_text
from attn_exp.report.sentences import spoken
from attn_exp.report.walk import Step

LETTERS, LINE, TALL = 11, 14, 40
"""Font size, line height, and height of a box with two lines of text."""

WIDTH, GAP, NARROW, BROAD = 352, 24, 112, 152
"""Width of the diagram, gap between two rows of boxes, and the widths of a narrow and of a broad box."""

LEFT, MIDDLE, RIGHT, ALONG = 60, 176, 292, 118
"""Horizontal centres of the three columns, and of the stages from the scores on. These stages are left of the middle,
so that the arrow from V can pass them on the right."""

INSIDE, BESIDE, BELOW, FRAME = 100, 98, 150, 252
"""The maximum width of text in a narrow box, next to an arrow into it, and next to an arrow between stages. The last
number is the width of the frame around the computation in each head."""

CHAIN = ("scores", "logits", "capped", "masked", "weights", "lse")
"""The stages between queries and context, each in a row of its own."""

COLUMNS = {"q": LEFT, "k": MIDDLE, "v": RIGHT}

TOGETHER = "together"
"""The name of the box that shows the concatenated heads."""

HUES = {"x": "x", "memory": "x", "q": "q", "k": "k", "v": "v", "weights": "a", "context": "c", "output": "y"}
"""The key of `COLOURS` for each stage. Projections have the key w, and all stages between queries and weights s."""

COLOURS = {
    "x": "#66717d", "w": "#66717d", "q": "#0072b2", "k": "#d55e00", "v": "#009e73",
    "s": "#b0579a", "a": "#d99a00", "c": "#2f9fd8", "y": "#7a5af0",
}  # fmt: skip
"""The colours of a diagram in a file. On a page, the style sheet sets them and blends them with the background."""

RULE, WASH = "#b6bec7", "#f4f6f8"
"""The border and the fill of the frame around the computation in each head."""


class Box(NamedTuple):
    """A box of the diagram, which stands for a stage.

    `name`: the name by which arrows refer to it: the `stage`, or `flat q` for the queries before they are split into
        heads.
    `symbol`, `word`: what is written in its first line.
    `lines`: what is written below; if empty, the shape of the matrix.
    `rows`, `columns`, `heads`: the shape of a matrix, and the number of matrices of this shape.
    `parts`: the number of heads that the columns of a matrix are split into.
    `middle`, `top`, `width`: the horizontal centre of the box, its upper edge, and its width.
    `href`: the address of the table of the stage.
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
        return Markup("".join(element(shape, styled=False) for shape in box_shapes(self)))


Link = tuple[str, str, str]
"""The source, the target and the label of an arrow."""


class Flow(NamedTuple):
    """A whole diagram: its boxes, and the shapes `behind` them, which are arrows, labels and a frame."""

    height: int
    boxes: tuple[Box, ...]
    behind: tuple[Shape, ...]
    width: int = WIDTH

    @property
    def svg(self) -> Markup:
        return Markup("".join(element(shape, styled=False) for shape in self.behind))

    @property
    def shapes(self) -> list[Shape]:
        """All shapes, background first."""
        return [*self.behind, *(shape for box in self.boxes for shape in box_shapes(box))]


def hue(stage: str) -> str:
    return "w" if stage[:2] in ("W_", "b_") else HUES.get(stage, "s")


def shorten(text: str, room: float) -> str:
    return fit_text(text, room / 72, LETTERS)


def lay_out_flow(
    problem: Problem, settled: Settled, trace: Trace, steps: Sequence[Step], addresses: Mapping[str, str]
) -> Flow:
    """Return the diagram of one variant.

    `steps` are its stages. `addresses` has the address of the table of each stage on the page.
    """
    split = describe_splitting(problem, settled, trace)
    boxes, top = list[Box](), 8
    for row in filter(None, box_rows(settled, steps, split)):
        boxes += [box._replace(top=top, href=addresses.get(box.stage, "")) for box in row]
        top += max(box.height for box in row) + GAP
    boxes_by_name = {box.name: box for box in boxes}
    arrows = [
        shape
        for source, target, label in list_links(problem, settled, steps, boxes_by_name)
        if source in boxes_by_name and target in boxes_by_name
        for shape in arrow_shapes(boxes_by_name[source], boxes_by_name[target], label)
    ]
    return Flow(top - GAP + 8, tuple(boxes), (*frame_shapes(boxes, split), *arrows))


def box_rows(settled: Settled, steps: Sequence[Step], split: Splitting) -> Iterator[list[Box]]:
    by_stage = {step.stage: step for step in steps}
    inputs = {"x": LEFT, "memory": (MIDDLE + RIGHT) // 2} if "memory" in by_stage else {"x": MIDDLE}
    yield [input_box(by_stage[name], middle, settled) for name, middle in inputs.items() if name in by_stage]
    yield [projection_box(by_stage, name, middle) for name, middle in COLUMNS.items() if f"W_{name}" in by_stage]
    sides = {name: middle for name, middle in COLUMNS.items() if name in by_stage}
    if split.heads > 1:
        yield [
            stage_box(by_stage[name], NARROW, middle)._replace(
                name=f"flat {name}",
                symbol=name.upper(),
                columns=split.columns[name],
                heads=1,
                parts=split.parts.get(name, 1),
            )
            for name, middle in sides.items()
        ]
    yield [
        split_box(stage_box(by_stage[name], NARROW, middle), split, name_rotations(settled, name))
        for name, middle in sides.items()
    ]
    yield from ([stage_box(by_stage[name], BROAD, ALONG)] for name in (*CHAIN, "context") if name in by_stage)
    if "context" in by_stage and split.heads > 1:
        yield [concatenated_box(stage_box(by_stage["context"], BROAD, ALONG))]
    if "output" in by_stage:
        yield [
            stage_box(by_stage["output"], BROAD, ALONG),
            *([projection_box(by_stage, "o", RIGHT)] if "W_o" in by_stage else []),
        ]


def stage_box(step: Step, width: int, middle: int) -> Box:
    # the last two axes are rows and columns, and an axis before them is the heads; a bias has one row, lse one column
    *heads, rows, columns = (1, *step.shape) if step.stage != "lse" else (*step.shape, 1)
    symbol, count = step.explained.symbol, heads[-1] if heads else 1
    return Box(step.stage, step.stage, symbol, spoken(step.stage), rows, columns, middle, width, heads=count)


def input_box(step: Step, middle: int, settled: Settled) -> Box:
    box = stage_box(step, NARROW, middle)
    added_positions = [registry.name_of(position) for position in settled.positions if position.changes_x]
    if not added_positions:
        return box
    line = shorten(f"+ {', '.join(added_positions)}", INSIDE)
    return box._replace(lines=(box.size, line))


def projection_box(by_stage: Mapping[str, Step], name: str, middle: int) -> Box:
    box, bias = stage_box(by_stage[f"W_{name}"], NARROW, middle), by_stage.get(f"b_{name}")
    return box._replace(word=f"+ {bias.explained.symbol}") if bias else box


def split_box(box: Box, split: Splitting, rotation: str) -> Box:
    # add lines to the box of q, k or v: which columns become which head, such as `1–2 → head 1`, and the rotation
    if box.heads == 1 or not split.is_known:
        return box
    stage = box.stage
    parts_per_head = 1 if stage == "q" else split.pooled
    width, is_tiled = parts_per_head * split.columns[stage] // split.parts[stage], split.tiled and stage != "q"
    columns_by_head = {
        head: format_columns(head % split.shared if is_tiled else head, width) for head in range(box.heads)
    }
    arrow = "mean →" if parts_per_head > 1 else "→" if box.heads > 8 else "→ head"
    labels = [f"{columns} {arrow} {head + 1}" for head, columns in columns_by_head.items()]
    lines = [*abbreviate_lines(labels), *filter(None, [rotation])]
    return box._replace(
        word=shorten(f"{box.heads} of {box.size}", INSIDE - 12),
        lines=tuple(shorten(line, INSIDE) for line in lines),
    )


def concatenated_box(context: Box) -> Box:
    count, width = context.heads, context.columns
    lines = [f"head {head + 1} → {format_columns(head, width)}" for head in range(count)]
    return context._replace(
        name=TOGETHER, symbol="C", word="side by side", columns=count * width,
        heads=1, parts=count, lines=tuple(abbreviate_lines(lines)),
    )  # fmt: skip


def abbreviate_lines(lines: Sequence[str]) -> list[str]:
    return list(lines) if len(lines) <= 4 else [*lines[:2], "…", lines[-1]]


def format_columns(part: int, width: int) -> str:
    """Return the columns of a part as a range, counted from 1: with `part=1, width=2` it is `3–4`."""
    first = part * width + 1
    return str(first) if width == 1 else f"{first}–{first + width - 1}"


def list_links(problem: Problem, settled: Settled, steps: Sequence[Step], boxes: Mapping[str, Box]) -> Iterator[Link]:
    """Yield the arrows between boxes, and some from or to boxes that do not exist, which the caller drops."""
    for name in COLUMNS:
        # with several heads, the projection leads to the flat columns, which are then split and perhaps rotated
        first_box = f"flat {name}" if f"flat {name}" in boxes else name
        source = "memory" if "memory" in boxes and name != "q" else "x"
        new = "new rows" if name == "q" and problem.past else ""
        yield source, f"W_{name}", ""
        yield (
            f"W_{name}",
            first_box,
            ", ".join(filter(None, [new, name_rotations(settled, name) if first_box == name else ""])),
        )
        yield f"flat {name}", name, "columns"
    sources = [name for name in ("q", "k") if name in boxes]
    for step in (step for step in steps if step.stage in CHAIN):
        label = settled.mistake if step.wrong and settled.mistakes else label_operation(step, settled)
        yield from ((name, step.stage, label if name == sources[-1] else "") for name in sources)
        sources = [step.stage]
    yield from ((name, "context", "") for name in [*sources, "v"])
    yield "context", TOGETHER, ""
    yield next((name for name in (TOGETHER, "context") if name in boxes), "x"), "output", ""
    yield "W_o", "output", "×"


def label_operation(step: Step, settled: Settled) -> str:
    rules = settled.rules
    labels = {
        "scores": "Q Kᵀ" if rules.pairing is None else registry.name_of(rules.pairing),
        "logits": f"× c = {settled.multiplier:.4g}",
        "weights": rules.normalizer.name,
        "lse": "",
    }
    return labels.get(step.stage, step.note)


def name_rotations(settled: Settled, name: str) -> str:
    """Return the names of the position encodings that rotate q or k; encodings that are added to x are in its box."""
    rotations = [registry.name_of(position) for position in settled.positions if not position.changes_x]
    return "" if name == "v" else ", ".join(rotations)


def arrow_shapes(source: Box, target: Box, label: str) -> Iterator[Shape]:
    # a box with several heads has a second card behind it, 4 pixels to the right; a tip is 6 pixels long
    start, edge = (source.middle, source.bottom), target.right + (4 if target.heads > 1 else 0)
    is_same_row = source.top == target.top
    if is_same_row or (target.stage == "context" and source.left > target.right):
        # the arrow ends at the right side of the target: it comes straight from a box next to it, or round a corner
        level = target.top + TALL // 2
        points = [(source.left, level)] if is_same_row else [start, (source.middle, level)]
        yield from line_with_tip(line_path(*points, (edge + 6, level)), f"M{edge + 6} {level - 3}l0 6l-6 -3z")
        x, y, text = edge + 12, level - 6, label
    else:
        # the arrow ends on top of the target: it comes straight down, or in a curve that ends 12 pixels off the centre
        end, side = target.top - 6, (source.middle > target.middle) - (source.middle < target.middle)
        bend, entry = (source.bottom + target.top) // 2, target.middle + 12 * side
        curve = f"M{source.middle} {source.bottom}C{source.middle} {bend} {entry} {bend} {entry} {end}"
        path = curve if side else line_path(start, (source.middle, end))
        yield from line_with_tip(path, f"M{entry - 3} {end}l6 0l-3 6z")
        x, y = max(source.middle, entry) + 9, end - 2
        text = shorten(label, BESIDE if target.width == NARROW else BELOW)
    if label:
        yield Text(x, y, text, LETTERS, colour=QUIET)


def line_path(*points: tuple[float, float]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def line_with_tip(path: str, tip: str) -> Iterator[Path]:
    yield Path(path, stroke=QUIET, line=1.3)
    yield Path(tip, QUIET)


def frame_shapes(boxes: Sequence[Box], split: Splitting) -> Iterator[Shape]:
    framed = [box for box in boxes if box.stage in (*CHAIN, "context") and box.name != TOGETHER]
    if split.heads > 1 and framed:
        top, bottom = framed[0].top - GAP + 3, framed[-1].bottom + 8
        yield Rect(28, top, FRAME, bottom - top, WASH, RULE, 1, (4, 3), 5)
        yield Text(18, (top + bottom) / 2, split.label, LETTERS, "center", turned=True, colour=QUIET)


def box_shapes(box: Box) -> Iterator[Shape]:
    # a card (two for several heads), an icon of the matrix, and lines of text
    colour, x, y = COLOURS[box.hue], box.left, box.top
    card = Rect(x, y, box.width, box.height, blend_with_white(colour, 0.16), colour, 1.5, radius=5)
    if box.heads > 1 and not box.lines:
        yield card._replace(x=x + 4, y=y + 4)
    yield card
    lines = box.lines or (box.size,)
    indent = 7 if box.lines or len(box.size) > 9 else 40
    if indent == 40:  # there is room for the icon
        yield from icon_paths(box)
    heading = Text(x + indent, y + LINE + 1, box.word, LETTERS, colour=INK, symbol=box.symbol)
    yield heading
    yield from (
        Text(x + indent, heading.y + LINE * line, text, LETTERS, colour=INK) for line, text in enumerate(lines, start=1)
    )


def icon_paths(box: Box) -> Iterator[Path]:
    # a grid of the rows and columns of the matrix, at most 28 pixels wide and high; every second head is darker
    cell_size = min(28 / box.rows, 28 / box.columns, 7)
    cell_size = int(cell_size) if cell_size >= 1 else cell_size
    across, down = max(int(cell_size * box.columns), 3), max(int(cell_size * box.rows), 3)  # width and height
    x, y, colour = box.left + 7, box.top + (box.height - down) // 2, COLOURS[box.hue]
    cells = f"M{x} {y}l{across} 0l0 {down}l{-across} 0z"
    if cell_size > 2:
        cells += "".join(f"M{x} {y + row * cell_size}l{across} 0" for row in range(1, box.rows))
        cells += "".join(f"M{x + column * cell_size} {y}l0 {down}" for column in range(1, box.columns))
    yield Path(cells, blend_with_white(colour, 0.55), PAPER, 1)
    if 1 < box.parts <= 16 and across >= box.parts:
        part = across // box.parts
        odd_parts = (f"M{x + index * part} {y}l{part} 0l0 {down}l{-part} 0z" for index in range(1, box.parts, 2))
        yield Path("".join(odd_parts), colour, opacity=0.6)


def blend_with_white(colour: str, share: float) -> str:
    channels = (int(colour[index : index + 2], 16) for index in (1, 3, 5))
    return "#" + "".join(f"{round(255 + share * (channel - 255)):02x}" for channel in channels)


class Splitting(NamedTuple):
    """How q, k and v are split into `heads` query heads, which share `shared` heads of keys and values.

    `columns`: the number of columns of q, k and v before they are split.
    `parts`: the number of parts that these columns are cut into.
    `pooled`: the number of adjacent parts that are averaged to get one head of keys and values; 1 means that parts are
        not averaged, and that only the first ones are used.
    `tiled`: whether query heads use the heads of keys and values in turn (1, 2, 1, 2), not in groups (1, 1, 2, 2).
    `is_known`: whether it is known which columns belong to which head; if not, the diagram does not show it.
    `label`: the text next to the frame.
    """

    heads: int
    columns: Mapping[str, int]
    parts: Mapping[str, int]
    shared: int
    pooled: int
    tiled: bool
    is_known: bool
    label: str


def describe_splitting(problem: Problem, settled: Settled, trace: Trace) -> Splitting:
    """Return how a variant splits q, k and v into heads; for a mistake or the user's own code, this is not known."""
    arrays = {"q": problem.q, "k": problem.k, "v": problem.v}
    # any stage with a matrix per head has the number of heads as its first axis
    traced = next((array for array in (trace.q, trace.weights, trace.context) if array is not None), None)
    heads, sizes = 1 if traced is None else len(traced), settled.heads
    parts = {"q": sizes.query, "k": sizes.given, "v": sizes.given}
    is_known = not settled.mistakes and not forms.is_own(settled.form)
    columns = {name: array.shape[-1] for name, array in arrays.items() if array is not None}
    pooled = sizes.given // sizes.shared if sizes.pool == "mean" else 1
    group_size = sizes.query // sizes.shared
    label = f"in each of {heads} heads{f', {group_size} share a K and V' if group_size > 1 else ''}"
    return Splitting(heads, columns, parts, sizes.shared, pooled, settled.tiled, is_known, label)


def label_parts(step: Step, split: Splitting) -> Step:
    """Return the step of a projection with head labels above its columns, such as head 1 above the first 4.

    Other steps are returned unchanged.
    """
    name = step.stage[2:]  # W_q becomes q
    if not walk.is_projection(step) or split.heads == 1 or not split.is_known or name not in split.parts:
        return step
    shown_columns, width = min(walk.SIDE, split.columns[name]), split.columns[name] // split.parts[name]
    labels = [
        (name_heads(split, name, part), min(width, shown_columns - part * width)) for part in range(split.parts[name])
    ]
    parts = tuple((label, count) for label, count in labels if count > 0)
    return step._replace(tables=tuple(table._replace(parts=parts) for table in step.tables))


def show_columns_by_head(step: Step, split: Splitting, array: Array, most_columns: int) -> Step:
    """Return the step of a projection with the first columns of every head, instead of the first columns overall.

    A step with at most `most_columns` is returned unchanged.
    """
    name, column_count = step.stage[2:], array.shape[-1]
    if not step.tables[0].parts or column_count <= most_columns or split.pooled > 1:
        return step
    width = column_count // split.parts[name]
    starts = range(0, column_count, width)
    heads = np.stack([np.atleast_2d(array)[: walk.SIDE, start : start + min(width, walk.SIDE)] for start in starts])
    return step._replace(
        heads=heads, owners=tuple((name_heads(split, name, start // width), start) for start in starts)
    )


def show_rows_by_head(step: Step, head_count: int, array: Array, most_rows: int) -> Step:
    """Return the step of W_o with the first rows of every head, instead of the first rows overall.

    A step with at most `most_rows` is returned unchanged.
    """
    if head_count == 1 or len(array) <= most_rows or len(array) % head_count:
        return step
    width = len(array) // head_count
    heads = np.stack(
        [array[start : start + min(width, walk.SIDE), : walk.SIDE] for start in range(0, len(array), width)]
    )
    return step._replace(heads=heads, head_rows=width)


def name_heads(split: Splitting, name: str, part: int) -> str:
    """Return the heads that use one part of the columns of q, k or v, such as `heads 1–2`, or `unused`."""
    group, group_size = (part, 1) if name == "q" else (part // split.pooled, split.heads // split.shared)
    if name != "q" and group >= split.shared:
        return "unused"
    if group_size == 1:
        return f"head {group + 1}"
    if split.tiled:
        return f"heads {', '.join(str(head + 1) for head in range(group, split.heads, split.shared))}"
    return f"heads {format_columns(group, group_size)}"
