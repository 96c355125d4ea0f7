"""The picture of the flow, drawn with Matplotlib: for PDF and PNG, and where a page of a set height is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import FancyBboxPatch, PathPatch, Rectangle
from matplotlib.path import Path

from attn_exp.report.flow_shapes import QUIET, Curve, Rect, Shape, Sheet, Words
from attn_exp.report.lettering import drawable, measured


def drawing_of(sheet: Sheet, wide: float) -> Drawing:
    """Return a sheet as a drawing so many inches wide."""
    pixel = wide / sheet.width
    drawing = Drawing(figsize=(wide, pixel * sheet.height))
    axes = drawing.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, sheet.width), ylim=(sheet.height, 0))
    axes.set_axis_off()
    for shape in sheet.shapes:
        put(axes, shape, 72 * pixel)
    return drawing


def put(axes: Axes, shape: Shape, points: float) -> None:
    """Draw one shape; a pixel is so many points."""
    match shape:
        case Rect(x, y, width, height, colour, stroke, dashed):
            look: dict[str, Any] = {"facecolor": colour, "edgecolor": stroke or "none", "linewidth": 1.3 * points}
            if stroke and not dashed:
                rounded = f"round,pad=0,rounding_size={5}"
                axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=rounded, mutation_aspect=1, **look))
            else:
                axes.add_patch(Rectangle((x, y), width, height, linestyle="--" if dashed else "-", **look))
        case Curve(path, x, y, colour, edge):
            stroke = edge or ("none" if colour else QUIET)
            line = {"facecolor": colour or "none", "edgecolor": stroke, "linewidth": 1.2 * points}
            axes.add_patch(PathPatch(Path(*path_of(path, x, y)), linestyle="--" if edge else "-", **line))
        case Words():
            write(axes, shape, points)


def write(axes: Axes, words: Words, points: float) -> None:
    """Write a text, after its symbol where it has one."""
    place, look = words.x, dict[str, Any](color=words.colour, parse_math=False)
    if words.symbol:
        bold: dict[str, Any] = {"fontsize": 12 * points, "fontweight": "bold", "fontstyle": "italic"}
        axes.text(place, words.y, words.symbol, **bold, **look)
        place += 1.5 * measured(words.symbol) * 72 * 1.12 + 4
    if words.turned:
        look |= {"rotation": 90, "ha": "center", "va": "center"}
    axes.text(place, words.y, drawable(words.text), fontsize=words.size * points, **look)


def path_of(path: str, x: float, y: float) -> tuple[list[tuple[float, float]], list[int]]:
    """Return the points and the codes of a path in SVG's letters."""
    points, codes = list[tuple[float, float]](), list[int]()
    for letter, numbers in re.findall(r"([MHVCvlhz])([^A-Za-z]*)", path):
        values = [float(number) for number in re.findall(r"-?[\d.]+", numbers)]
        last = points[-1] if points else (x, y)
        added = [points[0]] if letter == "z" else list(steps(letter, values, last, (x, y)))
        points += added
        kind = {"M": Path.MOVETO, "C": Path.CURVE4, "z": Path.CLOSEPOLY}.get(letter, Path.LINETO)
        codes += [int(kind)] * len(added)
    return points, codes


def steps(
    letter: str, values: list[float], last: tuple[float, float], origin: tuple[float, float]
) -> Iterator[tuple[float, float]]:
    """Yield the points that one letter of a path leads to."""
    if letter in "MC":
        yield from ((origin[0] + values[at], origin[1] + values[at + 1]) for at in range(0, len(values), 2))
    elif letter == "l":
        yield last[0] + values[0], last[1] + values[1]
    else:
        across = {"H": origin[0] + values[0], "h": last[0] + values[0]}.get(letter, last[0])
        yield across, {"V": origin[1] + values[0], "v": last[1] + values[0]}.get(letter, last[1])
