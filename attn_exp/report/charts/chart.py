"""What a chart is: heat maps and plots, placed in inches from the upper left corner of a sheet, and shapes.

`layout` turns maps and plots into shapes, which the two renderers draw: rectangles, paths, texts and pictures, in
points from the same corner. All are named tuples, as each dataclass would cost a run a
millisecond before its page. Below them: round numbers along an axis, where Matplotlib would put them.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attn_exp.arrays import Array

Side = Literal["left", "center", "right"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, told apart by the colour-blind."""

MARKERS = "osD^vPX"
INK, QUIET, PAPER = "#1b1f24", "#59636e", "#ffffff"
"""The colours of words and of lines in the picture of the flow, and of the sheet."""

GREY = "#808080"
CLOSED = "#d0d0d0"
"""The grey of masked cells."""

LINE = 0.17
"""Inches: the height of a line of text."""

NARROW = 4.5
"""Inches: charts up to this width have one column of text."""


class Box(NamedTuple):
    """Where something stands, in inches from the upper left."""

    left: float
    top: float
    width: float
    height: float


class Ticks(NamedTuple):
    """Names along an axis and the places where they stand, in the numbers of the axis; turned ones read upwards."""

    places: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    turned: bool = False


NO_TICKS = Ticks()


class Heat(NamedTuple):
    """A matrix `[t s]` as coloured cells, its first row on top; what is no number stays white.

    The colour is `(value / end) ** gamma` on the map of colours of this name; `form` writes the number into each cell.
    Cells that a mask has `closed` are grey and hold no number.
    """

    box: Box
    matrix: Array
    end: float
    colours: str
    gamma: float = 1.0
    form: str = ""
    title: str = ""
    rows: Ticks = NO_TICKS
    columns: Ticks = NO_TICKS
    closed: Array | None = None


class Stroke(NamedTuple):
    """Points `[n]` joined by a line, marked, or both.

    `width` is the line's in points, 0 for none; `steps` holds each y until the next x. `mark` is one of `MARKERS`,
    `size` points across. What has a label stands in the legend.
    """

    x: Array
    y: Array
    colour: str
    width: float = 0.0
    dotted: bool = False
    steps: bool = False
    mark: str = ""
    size: float = 6.0
    opacity: float = 1.0
    label: str = ""


class Axis(NamedTuple):
    """An axis from `low` to `high`, by powers of ten where it is `log`; lines of its name stand below each other."""

    low: float
    high: float
    ticks: Ticks = NO_TICKS
    name: str = ""
    log: bool = False


class Plot(NamedTuple):
    """Strokes between two axes, the first at the bottom, with a legend above in so many columns."""

    box: Box
    strokes: tuple[Stroke, ...]
    x: Axis
    y: Axis
    columns: int = 1


class Legend(NamedTuple):
    """What strokes with labels stand for, in so many columns above the top of a box."""

    box: Box
    strokes: tuple[Stroke, ...]
    columns: int = 1


class Rect(NamedTuple):
    """A rectangle with rounded corners; without a `stroke` it has no edge."""

    x: float
    y: float
    width: float
    height: float
    fill: str = "none"
    stroke: str = ""
    line: float = 0.6
    dashes: tuple[float, float] | None = None
    radius: float = 0


class Path(NamedTuple):
    """A path from `x` and `y` in letters of SVG: `M`, `L`, `C` to places, `m`, `l`, `c` from the last one, and `z`."""

    path: str
    fill: str = "none"
    stroke: str = ""
    line: float = 0.8
    dashes: tuple[float, float] | None = None
    opacity: float = 1.0
    x: float = 0
    y: float = 0


class Text(NamedTuple):
    """A text whose line begins, ends or has its middle at a place, after a `symbol` in bold italics.

    A text that is turned reads upwards.
    """

    x: float
    y: float
    text: str
    size: float = 8.0
    side: Side = "left"
    turned: bool = False
    colour: str = "#000000"
    symbol: str = ""


class Picture(NamedTuple):
    """Pixels `[row column 4]` stretched to a rectangle; the last axis is red, green, blue and opacity."""

    x: float
    y: float
    width: float
    height: float
    pixels: NDArray[np.uint8]


Shape = Rect | Path | Text | Picture
Part = Heat | Plot | Legend | Shape


class Chart(NamedTuple):
    """A white sheet of so many inches and what stands on it; it is shown `zoom` times as large as it is drawn.

    A larger `page`, if any, has the sheet in its middle. Most of its letters have so many points.
    """

    width: float
    height: float
    parts: tuple[Part, ...]
    zoom: float = 1.0
    page: tuple[float, float] | None = None
    letters: float = 8.0


STEPS = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0, 10.0, 20.0)
"""Round steps, in powers of ten of what nine tenths of an axis would need."""

POINTS_EACH = 15
"""Points of an axis, upwards, that each number of it takes at least."""


def number_ticks(low: float, high: float, length: float) -> Ticks:
    """Return round numbers along an upward axis of so many inches, all with the same digits; tiny ones as `2e-25`."""
    places = round_places(low, high, ticks_in(length))
    step = f"{places[1] - places[0]:.3g}" if len(places) > 1 else "0.01"
    kind = ".4g" if "e" in step else f".{len(step.partition('.')[2])}f"
    return Ticks(places, tuple(f"{place:{kind}}" for place in places))


def ticks_in(length: float) -> int:
    """Return into how many pieces numbers part an upward axis of so many inches at most."""
    return max(1, min(9, int(length * 72 // POINTS_EACH)))


def round_places(low: float, high: float, most: int) -> tuple[float, ...]:
    """Return multiples of the smallest round step that parts an axis into at most so many pieces.

    Where fewer than two fall on the axis, the next smaller step is taken. Source: `MaxNLocator` of Matplotlib, with the
    steps 1, 2, 2.5, 5 and 10.
    """
    piece = max((high - low) / most, 1e-300)  # below, floats lose their digits
    power = 10.0 ** math.floor(math.log10(piece))
    steps = [step * power for step in STEPS]
    largest = next((place for place, step in enumerate(steps) if step >= piece), len(steps) - 1)
    tried = [
        tuple(place * step for place in range(math.ceil(low / step - 1e-10), math.floor(high / step + 1e-10) + 1))
        for step in reversed(steps[: largest + 1])
    ]
    return next((places for places in tried if len(places) > 1), tried[-1])


def power_ticks(low: float, high: float, length: float) -> Ticks:
    """Return powers of ten along an axis of so many inches."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    room = max(2, min(9, int(length * 72 // 22)))
    places = [10.0**power for power in range(first, last + 1, (last - first) // room + 1)]
    return Ticks(tuple(places), tuple(f"{place:g}" for place in places))


def name_ticks(names: list[str], turned: bool, length: float) -> Ticks:
    """Return names of the cells along an axis `length` inches long, leaving out evenly what would overlap."""
    places = range(0, len(names), max(1, math.ceil(0.12 * len(names) / length)))
    return Ticks(tuple(map(float, places)), tuple(names[place] for place in places), turned)
