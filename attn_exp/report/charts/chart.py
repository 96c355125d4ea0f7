"""Charts: heat maps and plots, placed in inches from the upper left corner of a sheet, and shapes.

`layout` turns maps and plots into the shapes that both renderers draw: rectangles, paths, texts and pictures, in points
from the same corner. All are named tuples, since each dataclass would add a millisecond to the start of a run. The
functions below choose round numbers for ticks, as Matplotlib would.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attn_exp.arrays import Array

Side = Literal["left", "center", "right"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, distinguishable by the colour-blind."""

MARKERS = "osD^vPX"
INK, QUIET, PAPER = "#1b1f24", "#59636e", "#ffffff"
"""Colours of text, of lines in the diagram of the flow, and of the background."""

GREY = "#808080"
CLOSED = "#d0d0d0"
"""The grey of masked cells."""

LINE = 0.17
"""Line height, in inches."""

NARROW = 4.5
"""Maximum width of a chart with one column of text, in inches."""


class Box(NamedTuple):
    """A rectangle, in inches from the upper left."""

    left: float
    top: float
    width: float
    height: float


class Ticks(NamedTuple):
    """Tick labels and their positions in units of the axis; `turned` ones read upwards."""

    places: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    turned: bool = False


NO_TICKS = Ticks()


class Heat(NamedTuple):
    """A matrix `[t s]` as coloured cells, with its first row on top; NaN stays white.

    The colour is `(value / end) ** gamma` on the colour map `colours`; `form` formats the number in each cell. `closed`
    cells are masked: grey and without a number.
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

    `width` is that of the line in points, 0 for none; `steps` keeps each y until the next x. `mark` is one of
    `MARKERS`, `size` its diameter in points. A stroke with a label is in the legend.
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
    """An axis from `low` to `high`, logarithmic if `log`; its name may have several lines."""

    low: float
    high: float
    ticks: Ticks = NO_TICKS
    name: str = ""
    log: bool = False


class Plot(NamedTuple):
    """Strokes between two axes, the first at the bottom, with a legend of `columns` columns above."""

    box: Box
    strokes: tuple[Stroke, ...]
    x: Axis
    y: Axis
    columns: int = 1


class Rect(NamedTuple):
    """A rectangle with rounded corners; without a `stroke` it has no border."""

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
    """A path in SVG syntax, relative to `x` and `y`: `M`, `L`, `C`, `m`, `l`, `c` and `z`."""

    path: str
    fill: str = "none"
    stroke: str = ""
    line: float = 0.8
    dashes: tuple[float, float] | None = None
    opacity: float = 1.0
    x: float = 0
    y: float = 0


class Text(NamedTuple):
    """A text that starts, ends or is centred at a point, after a `symbol` in bold italics.

    A `turned` text reads upwards.
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
Part = Heat | Plot | Shape


class Chart(NamedTuple):
    """A white sheet in inches with its parts, enlarged `zoom` times.

    It is centred on a larger `page`, if any. `letters` is the size of most of its text, in points.
    """

    width: float
    height: float
    parts: tuple[Part, ...]
    zoom: float = 1.0
    page: tuple[float, float] | None = None
    letters: float = 8.0


STEPS = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0, 10.0, 20.0)
"""Round steps, relative to the power of ten below the smallest step allowed."""

POINTS_EACH = 15
"""Minimum distance of tick labels on an upward axis, in points."""


def number_ticks(low: float, high: float, length: float) -> Ticks:
    """Return round numbers along an upward axis, `length` inches long, with equal digits; tiny ones as `2e-25`."""
    places = round_places(low, high, ticks_in(length))
    step = f"{places[1] - places[0]:.3g}" if len(places) > 1 else "0.01"
    kind = ".4g" if "e" in step else f".{len(step.partition('.')[2])}f"
    return Ticks(places, tuple(f"{place:{kind}}" for place in places))


def ticks_in(length: float) -> int:
    """Return the maximum number of tick intervals on an upward axis, `length` inches long."""
    return max(1, min(9, int(length * 72 // POINTS_EACH)))


def round_places(low: float, high: float, most: int) -> tuple[float, ...]:
    """Return multiples of the smallest round step that splits an axis into at most `most` intervals.

    If fewer than two are on the axis, the next smaller step is used. Source: `MaxNLocator` of Matplotlib, with the
    steps 1, 2, 2.5, 5 and 10.
    """
    piece = max((high - low) / most, 1e-300)  # floats lose precision below this
    power = 10.0 ** math.floor(math.log10(piece))
    steps = [step * power for step in STEPS]
    largest = next((place for place, step in enumerate(steps) if step >= piece), len(steps) - 1)
    tried = [
        tuple(place * step for place in range(math.ceil(low / step - 1e-10), math.floor(high / step + 1e-10) + 1))
        for step in reversed(steps[: largest + 1])
    ]
    return next((places for places in tried if len(places) > 1), tried[-1])


def power_ticks(low: float, high: float, length: float) -> Ticks:
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    room = max(2, min(9, int(length * 72 // 22)))
    places = [10.0**power for power in range(first, last + 1, (last - first) // room + 1)]
    return Ticks(tuple(places), tuple(f"{place:g}" for place in places))


def name_ticks(names: list[str], turned: bool, length: float) -> Ticks:
    """Return the names of cells along an axis, `length` inches long, skipping names evenly to avoid overlaps."""
    places = range(0, len(names), max(1, math.ceil(0.12 * len(names) / length)))
    return Ticks(tuple(map(float, places)), tuple(names[place] for place in places), turned)
