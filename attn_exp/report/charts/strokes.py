"""Plots as elements of an SVG: axes, lines, marks and the legend."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from attn_exp.arrays import Array
from attn_exp.report.charts.chart import Axis, Plot, Stroke
from attn_exp.report.charts.marks import outline
from attn_exp.report.charts.text import ABOVE, BELOW, BODY, TICK, Pen, short
from attn_exp.report.charts.widths import widest

REACH = 2.5 / 72
"""Inches: how far a tick reaches out."""

PAD = 3.5 / 72
"""Inches between a tick and its number."""

NAME_PAD = 4 / 72
"""Inches between the numbers of an axis and its name."""


def plot(pen: Pen, part: Plot, name: str) -> Iterator[str]:
    """Yield what a plot is made of; `name` is one that no other part of the chart has."""
    left, bottom, width, height = part.box
    yield f'<clipPath id="{name}"><rect {pen.placed(part.box)}/></clipPath>'
    yield f'<g clip-path="url(#{name})">'
    for place, stroke in enumerate(part.strokes):
        x = (left + width * share(part.x, stroke.x)) * 72
        y = (pen.height - bottom - height * share(part.y, stroke.y)) * 72
        yield from drawn(stroke, x, y, f"{name}m{place}")
    yield "</g>"
    yield pen.line((left, bottom), (left, bottom + height), "spine")
    yield pen.line((left, bottom), (left + width, bottom), "spine")
    yield from along(pen, part)
    yield from upwards(pen, part)
    yield from legend(pen, part, name)


def share(axis: Axis, values: Array) -> Array:
    """Return how far along an axis values lie, from 0 to 1."""
    if axis.log:
        return np.asarray(np.log(values / axis.low) / math.log(axis.high / axis.low))
    return np.asarray((values - axis.low) / (axis.high - axis.low))


def drawn(stroke: Stroke, x: Array, y: Array, name: str) -> Iterator[str]:
    """Yield the line and the marks of a stroke through points on the sheet."""
    if stroke.width:
        yield f'<path d="{path(x, y, stroke.steps)}" {look(stroke)}/>'
    if stroke.mark:
        faint = f' opacity="{stroke.opacity:g}"' if stroke.opacity < 1 else ""
        yield f'<defs><path id="{name}" d="{outline(stroke.mark, stroke.size)}" stroke="{stroke.colour}"/></defs>'
        yield f'<g fill="{stroke.colour}"{faint}>'
        for across, down in zip(x, y, strict=True):
            if np.isfinite(across) and np.isfinite(down):
                yield f'<use xlink:href="#{name}" x="{short(across)}" y="{short(down)}"/>'
        yield "</g>"


def look(stroke: Stroke) -> str:
    """Return how the line of a stroke looks, as attributes; dots are as long as the line is wide."""
    dots = f' stroke-dasharray="{stroke.width:g} {1.65 * stroke.width:g}"' if stroke.dotted else ""
    return f'fill="none" stroke="{stroke.colour}" stroke-width="{stroke.width:g}" stroke-linejoin="round"{dots}'


def path(x: Array, y: Array, steps: bool) -> str:
    """Return the line through points; it starts anew after what is no number."""
    words, begun = [], False
    for place, (across, down) in enumerate(zip(x, y, strict=True)):
        if not (np.isfinite(across) and np.isfinite(down)):
            begun = False
            continue
        if begun and steps:
            words.append(f"L{short(across)} {short(y[place - 1])}")
        words.append(f"{'L' if begun else 'M'}{short(across)} {short(down)}")
        begun = True
    return "".join(words)


def along(pen: Pen, part: Plot) -> Iterator[str]:
    """Yield the ticks of the lower axis, their names and the name of the axis below them."""
    left, bottom, width, _ = part.box
    ticks = part.x.ticks
    for place, name in zip(share(part.x, np.array(ticks.places)), ticks.names, strict=True):
        across = left + width * place
        yield pen.line((across, bottom), (across, bottom - REACH), "tick")
        yield pen.below(name, (across, bottom - REACH - PAD), ticks.turned)
    top = bottom - REACH - PAD - (ABOVE + BELOW) * TICK / 72 - NAME_PAD
    for place, line in enumerate(filter(None, part.x.name.split("\n"))):
        yield pen.text(line, (left + width / 2, top - place * 1.2 * BODY / 72), BODY, "center", "top")


def upwards(pen: Pen, part: Plot) -> Iterator[str]:
    """Yield the ticks of the left axis, their numbers and the name of the axis beside them, which reads upwards."""
    left, bottom, _, height = part.box
    ticks = part.y.ticks
    for place, name in zip(share(part.y, np.array(ticks.places)), ticks.names, strict=True):
        up = bottom + height * place
        yield pen.line((left, up), (left - REACH, up), "tick")
        yield pen.text(name, (left - REACH - PAD, up), TICK, "right", "tick")
    if part.y.name:
        across = left - REACH - PAD - widest(ticks.names, TICK) - NAME_PAD
        yield pen.text(part.y.name, (across, bottom + height / 2), BODY, "center", "bottom", turned=True)


def legend(pen: Pen, part: Plot, name: str) -> Iterator[str]:
    """Yield the strokes that have labels above the plot, in columns that are filled one after the other."""
    em = TICK / 72
    shown = [(place, stroke) for place, stroke in enumerate(part.strokes) if stroke.label]
    columns = np.array_split(np.arange(len(shown)), part.columns)
    rows, left = len(columns[0]), part.box.left + 0.6 * em
    top = part.box.bottom + part.box.height + 0.6 * em
    for column in columns:
        for row, entry in enumerate(column):
            place, stroke = shown[entry]
            middle = top + (rows - 1 - row) * 1.3 * em + 0.5 * em
            ends = np.array([left, left + em, left + 2 * em]) * 72
            yield from key(stroke, ends, (pen.height - middle) * 72, f"{name}k{place}")
            yield pen.text(stroke.label, (left + 2.8 * em, middle), TICK, "left", "middle")
        left += 4.8 * em + widest((shown[entry][1].label for entry in column), TICK)


def key(stroke: Stroke, x: Array, y: float, name: str) -> Iterator[str]:
    """Yield what stands beside a label: the line, and one mark in its middle."""
    if stroke.width:
        yield f'<path d="{path(x[::2], np.full(2, y), False)}" {look(stroke)}/>'
    if stroke.mark:
        where = f'transform="translate({short(x[1])} {short(y)})"'
        yield f'<path d="{outline(stroke.mark, stroke.size)}" {where} fill="{stroke.colour}" stroke="{stroke.colour}"/>'
