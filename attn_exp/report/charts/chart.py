"""What a chart is: heat maps, plots and words on a sheet, placed in inches from its lower left corner.

Tuples with names, as each dataclass would cost a run a millisecond before its page. Below them: where numbers stand
along an axis, round ones, as many as can be read, where Matplotlib would put them.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from attn_exp.arrays import Array

Side = Literal["left", "center", "right"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, told apart by the colour-blind."""

MARKERS = "osD^vPX"
INK, QUIET, PAPER = "#1b1f24", "#59636e", "#ffffff"
"""The colours of words and lines of a sheet of shapes, and of the sheet."""

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


class Rect(NamedTuple):
    """A rectangle; without a `stroke` it has no edge."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str = ""
    dashed: bool = False


class Curve(NamedTuple):
    """A path in the letters of SVG, from `x` and `y` on; with a `fill` it is an area, with a dashed `edge` if any."""

    path: str
    x: float = 0
    y: float = 0
    fill: str = ""
    edge: str = ""


class Label(NamedTuple):
    """A text on a line, after a `symbol` in bold italics; one that is turned reads upwards around its middle."""

    x: float
    y: float
    text: str
    symbol: str = ""
    size: float = 11
    colour: str = INK
    turned: bool = False


Shape = Rect | Curve | Label


class Sheet(NamedTuple):
    """Shapes on a sheet of so many pixels."""

    width: float
    height: float
    shapes: tuple[Shape, ...]


STEPS = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0, 10.0, 20.0)
"""Round steps, in powers of ten of what nine tenths of an axis would need."""

POINTS_EACH = 15
"""Points of an axis, upwards, that each number of it takes at least."""


def number_ticks(low: float, high: float, length: float) -> Ticks:
    """Return round numbers along an upward axis of so many inches, all with the same digits; tiny ones as `2e-25`."""
    places = round_places(low, high, ticks_in(length))
    digits = decimals_of_step(places[1] - places[0]) if len(places) > 1 else 2
    kind = f".{digits}f" if digits < TINY else ".4g"
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
    places: tuple[float, ...] = ()
    for step in reversed(steps[: largest + 1]):
        first, last = math.ceil(low / step - 1e-10), math.floor(high / step + 1e-10)
        places = tuple(place * step for place in range(first, last + 1))
        if len(places) > 1:
            break
    return places


def decimals_of_step(step: float) -> int:
    """Return how many digits after the point multiples of a round step need, at most `TINY`."""
    return next((digits for digits in range(TINY) if abs(step - round(step, digits)) < 1e-3 * step), TINY)


TINY = 20
"""Digits after the point from which on a number is written as a power of ten."""


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
