"""What a chart is: heat maps, plots and words on a sheet, placed in inches from its lower left corner.

Tuples with names, as each dataclass would cost a run a millisecond before its page.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from attn_exp.arrays import Array

Side = Literal["left", "center", "right"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, told apart by the colour-blind."""

MARKERS = "osD^vPX"
GREY = "#808080"
CLOSED = "#d0d0d0"
"""The grey of masked cells."""

LINE = 0.17
"""Inches: the height of a line of text."""

NARROW = 4.5
"""Inches: charts up to this width have one column of text."""


class Box(NamedTuple):
    """Where something stands, in inches."""

    left: float
    bottom: float
    width: float
    height: float


class Ticks(NamedTuple):
    """Names along an axis and the places where they stand, in the numbers of the axis; turned ones read upwards."""

    places: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    turned: bool = False


NO_TICKS = Ticks()


class Words(NamedTuple):
    """A text of so many points: `at` is its left or right end or its middle, at its lower edge.

    A text that is turned reads upwards, and `at` is the middle of its left edge. Lines stand below each other.
    """

    text: str
    at: tuple[float, float]
    size: float = 8.0
    side: Side = "left"
    turned: bool = False


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
    title_side: Side = "center"
    rows: Ticks = NO_TICKS
    columns: Ticks = NO_TICKS
    closed: Array | None = None


class Scale(NamedTuple):
    """The colours of heat maps from 0 to `end`, upwards, with numbers at the right."""

    box: Box
    end: float
    colours: str
    gamma: float
    title: str
    ticks: Ticks


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
    ticks: Ticks
    name: str = ""
    log: bool = False


class Plot(NamedTuple):
    """Strokes between two axes, the first at the bottom, with a legend above in so many columns."""

    box: Box
    strokes: tuple[Stroke, ...]
    x: Axis
    y: Axis
    columns: int = 1


Part = Words | Heat | Scale | Plot


class Chart(NamedTuple):
    """A white sheet of so many inches and what stands on it; it is shown `zoom` times as large as it is drawn.

    A larger `page`, if any, has the sheet in its middle.
    """

    width: float
    height: float
    parts: tuple[Part, ...]
    zoom: float = 1.0
    page: tuple[float, float] | None = None
