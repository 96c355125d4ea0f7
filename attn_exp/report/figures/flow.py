"""The way from the input to the output, one picture for each function that the variants compute.

On a page of a given height it is tried as the page of a run has it, from above, so many pictures side by side, and from
left to right; the one with the largest letters is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from attn_exp.report import words
from attn_exp.report.charts.chart import QUIET, Chart, Path, Shape, Text
from attn_exp.report.charts.widths import BY_TABLE
from attn_exp.report.figures.figure import FONT_SIZE, Figure
from attn_exp.report.flow import CHAIN, LETTERS, LINE, TOGETHER, Box, Flow, box_shapes, framed, line, pointed, wide
from attn_exp.report.sections.walks import flows
from attn_exp.report.views import Views

WIDE = 3.15
"""Inches: how wide one picture is where there is room."""

MOST = 6
"""More functions than these are left out: their ways differ in little."""

READABLE = 0.85
"""Letters may be this part of those in other figures; where they would be smaller, one picture stands alone."""

TITLE, MARGIN = 24, 2
"""Pixels: the height of the title above a picture, and what is left free around it."""

COLUMNS = (
    ("x", "memory"), ("W_q", "W_k", "W_v"), ("flat q", "flat k", "flat v"), ("q", "k", "v"), (*CHAIN, "context"),
    (TOGETHER, "W_o", "output"),
)  # fmt: skip
"""What stands below each other where a picture leads from left to right."""

ACROSS, DOWN, FRAME = 18, 12, 5
"""Pixels from column to column, from box to box, and from the frame to what it holds."""

Pictures = Sequence[tuple[str, Flow]]


def wanted(views: Views) -> bool:
    """A run that computed nothing has no way to show."""
    return any(row.same_as for row in views.comparison.rows)


def plan(views: Views, width: float, height: float | None = None) -> Chart:
    """Show each stage as a box with its size, and what leads to what.

    Where letters would be too small on a page of this height, the function with most stages is shown alone.
    """
    pictures = list(flows(views))[:MOST]
    if height is None:
        return stack_pictures(pictures, max(1, min(len(pictures), int(width / WIDE + 1e-9))))
    every = largest(pictures, width, height)
    if len(pictures) == 1 or LETTERS * shrunk(every, width, height) >= READABLE * FONT_SIZE:
        return every
    title, flow = max(pictures, key=lambda named: len(named[1].boxes))
    others = ", ".join(name for name, _ in pictures if name != title)
    return largest([(f"{title} (not drawn: {others})", flow)], width, height)


def largest(pictures: Pictures, width: float, height: float) -> Chart:
    """Return the chart that has the largest letters on a page."""
    charts = [
        from_left(pictures, "\n"),
        from_left(pictures, ", "),
        *(stack_pictures(pictures, across) for across in range(1, len(pictures) + 1)),
    ]
    return max(charts, key=lambda chart: shrunk(chart, width, height))


def shrunk(chart: Chart, width: float, height: float) -> float:
    """Return how large a chart is on a page, as a part of its size."""
    return min(width / chart.width, height / chart.height)


def stack_pictures(pictures: Pictures, across: int) -> Chart:
    """Return pictures as the page has them, under their titles, so many side by side."""
    shapes, top, width = list[Shape](), 0.0, pictures[0][1].width + 2 * MARGIN
    for start in range(0, len(pictures), across):
        row = pictures[start : start + across]
        for place, (title, flow) in enumerate(row):
            left = place * width + MARGIN
            shapes.append(heading(left, top, title, flow.width))
            shapes += [shape._replace(x=shape.x + left, y=shape.y + top + TITLE) for shape in flow.shapes]
        top += TITLE + max(flow.height for _, flow in row) + MARGIN
    return Chart(width * min(across, len(pictures)) / 72, top / 72, tuple(shapes), letters=LETTERS)


def heading(x: float, top: float, title: str, room: float) -> Text:
    """Return the title of a picture, shortened to its room."""
    return Text(x, top + 17, BY_TABLE.fitted(title, room * 8 / 12 / 72), 12)


def from_left(pictures: Pictures, joint: str) -> Chart:
    """Return pictures that lead from left to right, below each other.

    What is done on the way to a stage stands below its size, or beside it: `joint` parts the two.
    """
    shapes, top, right = list[Shape](), 0.0, 0.0
    for title, flow in pictures:
        columns = in_columns(flow, top + TITLE, joint)
        ends = max(box.right for column in columns for box in column) + 2 * FRAME
        shapes += [heading(MARGIN, top, title, ends - MARGIN), *framed_heads(flow, columns), *lines(flow, columns)]
        shapes += [shape for column in columns for box in column for shape in box_shapes(box)]
        right, top = max(right, ends), max(box.bottom for column in columns for box in column) + DOWN
    return Chart(right / 72, top / 72, tuple(shapes), letters=LETTERS)


def in_columns(flow: Flow, top: float, joint: str) -> list[list[Box]]:
    """Return the boxes in columns below a height, each as wide as its column needs, and evenly apart."""
    labels = {link.target: link.label for link in flow.links if link.label not in (words.COLUMNS, words.MIXED_BY)}
    known = {box.name: narrow(box, labels.get(box.name, ""), joint) for box in flow.boxes}
    columns = [[known[name] for name in names if name in known] for names in COLUMNS]
    high = max(sum(box.height + DOWN for box in column) for column in columns)
    left, placed = 2 * FRAME, list[list[Box]]()
    for column in filter(None, columns):
        width = max(box.width for box in column)
        apart, y = (high - sum(box.height for box in column)) / len(column), top + (LINE if flow.said else 0)
        placed.append([])
        for box in column:
            placed[-1].append(box._replace(width=width, middle=left + width // 2, top=round(y + apart / 2)))
            y += box.height + apart
        left += width + ACROSS
    return placed


def narrow(box: Box, label: str, joint: str) -> Box:
    """Return a box as wide as its words, which also say what is done on the way to it."""
    if not box.lines:
        said = joint.join(filter(None, [box.sizes, label]))
        box = box._replace(word=box.word if box.stage == box.name else "", lines=tuple(said.split("\n")))
    lines = [wide(box.heading or box.word, box.symbol), *map(wide, box.lines)]
    return box._replace(width=round(max(lines)) + 14)


def framed_heads(flow: Flow, columns: Sequence[Sequence[Box]]) -> Iterator[Shape]:
    """Yield the frame around what is done in each head, with the longest words that fit above it."""
    inside = next((column for column in columns if column[-1].name in (*CHAIN, "context")), None)
    if inside and flow.said:
        x, y, width = inside[0].left - FRAME, inside[0].top - LINE - FRAME, inside[0].width + 2 * FRAME
        yield framed(x, y, width, inside[-1].bottom + FRAME - y)
        said = next((text for text in flow.said if wide(text) <= width), flow.said[-1])
        yield Text(x + FRAME, y + LINE, said, LETTERS, colour=QUIET)


def lines(flow: Flow, columns: Sequence[Sequence[Box]]) -> Iterator[Path]:
    """Yield the lines: down where boxes from the scores on stand below each other, else round a corner to the right."""
    placed = {box.name: (place, box) for place, column in enumerate(columns) for box in column}
    for column in columns:
        for one, other in pairwise(column):
            if one.name in (*CHAIN, "context", TOGETHER, "W_o"):
                path = line((one.middle, one.bottom), (one.middle, other.top - 6))
                yield from pointed(path, f"M{one.middle - 3} {other.top - 6}l6 0l-3 6z")
    for link in flow.links:
        (place, source), (column_of, target) = placed[link.source], placed[link.target]
        if place < column_of:
            bend, start, end = target.left - 9, source.top + source.height / 2, target.top + target.height / 2
            corners = [] if start == end else [(bend, start), (bend, end)]
            path = line((source.right, start), *corners, (target.left - 6, end))
            yield from pointed(path, f"M{target.left - 6} {end - 3:g}l0 6l6 -3z")


FIGURE = Figure(
    caption=("From the input to the output: each stage with its size, one picture for each function."),
    plan=plan,
    wanted=wanted,
    in_page=False,
    place=5,
)
