"""The parts of charts: heat maps and plots in inches from the upper left corner of a sheet, and shapes.

`layout` turns maps and plots into the shapes that both renderers draw: rectangles, paths, text and pictures, in points
from the same corner. All are named tuples, since each dataclass would add a millisecond to the start of a run.

The functions below choose round numbers for ticks, as Matplotlib would, and measure text without a font. They take the
width of common letters from a table, and use an upper bound for all others.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attn_exp.arrays import Array

Side = Literal["left", "center", "right"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, distinguishable by the colour-blind."""

MARKERS = "osD^vPX"
INK, QUIET, PAPER = "#1b1f24", "#59636e", "#ffffff"
"""The colours of text, of lines in the flow diagram, and of the background."""

GREY = "#808080"
LINE = 0.17
"""Line height, in inches."""

NARROW = 4.5
"""A chart up to this width, in inches, has only one column of text."""


class Box(NamedTuple):
    """A rectangle, in inches from the upper left corner."""

    left: float
    top: float
    width: float
    height: float


class Ticks(NamedTuple):
    """The labels of ticks (`names`) and their positions on the axis (`places`); `turned` labels read upwards."""

    places: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    turned: bool = False


NO_TICKS = Ticks()


class Heat(NamedTuple):
    """A matrix `[t s]` as coloured cells, with its first row on top; NaN stays white.

    `end`, `gamma`, `colours`: the colour of a cell is `(value / end) ** gamma` on the colour map `colours`.
    `form`: the format of the number in each cell, such as `.2f`; if it is empty, there are no numbers.
    `rows`, `columns`: the labels next to the rows and below the columns.
    `is_masked`: which cells are grey and have no number.
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
    is_masked: Array | None = None


class Stroke(NamedTuple):
    """Points `[n]` that are joined by a line, have marks, or both.

    `width`: the width of the line in points; 0 means that there is none.
    `steps`: whether the line stays at each y until the next x.
    `mark`, `size`: one of `MARKERS`, and its diameter in points; an empty mark means that there are none.
    `label`: the text in the legend; if it is empty, the stroke is not in the legend.
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
    """An axis from `low` to `high`; it is logarithmic if `log` is set, and its name may have several lines."""

    low: float
    high: float
    ticks: Ticks = NO_TICKS
    name: str = ""
    log: bool = False


class Plot(NamedTuple):
    """Strokes between two axes, drawn in order; the legend above has `columns` columns."""

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
    """A path in SVG syntax, relative to `x` and `y`; its commands are `M`, `L`, `C`, `m`, `l`, `c` and `z`."""

    path: str
    fill: str = "none"
    stroke: str = ""
    line: float = 0.8
    dashes: tuple[float, float] | None = None
    opacity: float = 1.0
    x: float = 0
    y: float = 0


class Text(NamedTuple):
    """Text at a point.

    `side`: `left` if the text starts at the point, `right` if it ends there, `center` if it is centred there.
    `turned`: whether it reads upwards.
    `symbol`: letters before the text, in bold italics.
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
    """A white sheet with its parts, in inches.

    `zoom`: how many times the sheet is enlarged.
    `page`: the size of a larger page, on which the sheet is centred; None if there is none.
    `font_size`: the font size of most of its text, in points.
    """

    width: float
    height: float
    parts: tuple[Part, ...]
    zoom: float = 1.0
    page: tuple[float, float] | None = None
    font_size: float = 8.0


STEPS = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0, 10.0, 20.0)
"""The steps that count as round, relative to the power of ten below the smallest step that is allowed."""

POINTS_EACH = 15
"""Minimum distance between tick labels on a vertical axis, in points."""


def number_ticks(low: float, high: float, length: float) -> Ticks:
    """Return ticks at round numbers on a vertical axis of `length` inches; their labels have equally many decimals."""
    values = round_places(low, high, ticks_in(length))
    step = f"{values[1] - values[0]:.3g}" if len(values) > 1 else "0.01"  # its decimals are those of all ticks
    format_spec = ".4g" if "e" in step else f".{len(step.partition('.')[2])}f"
    return Ticks(values, tuple(f"{value:{format_spec}}" for value in values))


def ticks_in(length: float) -> int:
    """Return the maximum number of tick intervals on a vertical axis of `length` inches."""
    return max(1, min(9, int(length * 72 // POINTS_EACH)))


def round_places(low: float, high: float, most: int) -> tuple[float, ...]:
    """Return the multiples of a round step that are on an axis.

    The step is the smallest that splits the axis into at most `most` intervals. If fewer than two of its multiples are
    on the axis, the next smaller step is used. Source: `MaxNLocator` of Matplotlib,
    with the steps 1, 2, 2.5, 5 and 10.
    """
    smallest_step = max((high - low) / most, 1e-300)  # floats lose precision below this
    power = 10.0 ** math.floor(math.log10(smallest_step))
    steps = [step * power for step in STEPS]
    first_large_enough = next((index for index, step in enumerate(steps) if step >= smallest_step), len(steps) - 1)
    candidates = [
        tuple(index * step for index in range(math.ceil(low / step - 1e-10), math.floor(high / step + 1e-10) + 1))
        for step in reversed(steps[: first_large_enough + 1])
    ]
    return next((multiples for multiples in candidates if len(multiples) > 1), candidates[-1])


def power_ticks(low: float, high: float, length: float) -> Ticks:
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    most = max(2, min(9, int(length * 72 // 22)))  # a tick every 22 points
    values = [10.0**power for power in range(first, last + 1, (last - first) // most + 1)]
    return Ticks(tuple(values), tuple(f"{value:g}" for value in values))


def name_ticks(names: list[str], turned: bool, length: float) -> Ticks:
    """Return a tick for each name on an axis of `length` inches; if they would overlap, for every second, third, ..."""
    shown = range(0, len(names), max(1, math.ceil(0.12 * len(names) / length)))  # a name is 0.12 inches high
    return Ticks(tuple(map(float, shown)), tuple(names[index] for index in shown), turned)


ALIKE = {
    250: "′", 275: "'", 300: "IJijlıłʹΙϳІЈіј", 325: " ,.··‘’‚‛‧", 350: "/:;\\|¦ι․", 375: "-fſ‐‑", 400: "()[]tŧᵀ",
    425: "!r¡²³¹", 475: '"ªº', 500: "*_`§¨¯°´¸΄–‖†‡", 525: "szгѕ“”„‟", 550: "?cεζϲзсэє", 575: "FLĿŁΓνξ",
    600: "kvxyĸγκλςυχвтухчь•‣", 625: "PTYaeo«»ÞðøΡΤΥδθοπτГРТУабекояђ",
    650: "$0123456789ESbdghnpqu{}¢£¤¥µ¶ßþđŋΕΞΣβημρσЅЕЗилр√", 675: "KΚαφψнпћџ‥∆∑",
    700: "ABCRVXZħΑΒΔΖΛΧЄАБВСХЧЬЭЯдц", 725: "Къ", 750: "NUŊΝИ∧∨∩∪", 775: "DGHÐĐΗΠΩЏЛНПм", 800: "&OQØΘΟΦΨЂЋДОЦы",
    825: "w", 850: "#+<=>^~¬±×÷ωЪю←↑→↓−∓∗∞≈≠≡≤≥", 875: "MΜМФф∈", 900: "Ыњ", 925: "Ħжшљ", 975: "%щm¼½¾Æ",
    1000: "@W©®æ—…", 1025: "œ", 1050: "Њ≪≫", 1075: "ŒШ", 1100: "ЉЖЩЮ",
}  # fmt: skip
"""Letters by their width, in thousandths of the font size, rounded up to the next 25.

Source: the advance widths of DejaVu Sans, which Verdana shares. Hardly any common font has wider letters.
"""

WIDTHS = {letter: width / 1000 for width, letters in ALIKE.items() for letter in letters}

SCRIPTS = (
    (0x0590, 0x05FF, 0.8), (0x0600, 0x077F, 1.3), (0x0B80, 0x0DFF, 2.0), (0x0F00, 0x109F, 2.0), (0x1400, 0x16FF, 1.7),
    (0x1780, 0x18AF, 2.0), (0x1A00, 0x1CFF, 2.0), (0x1F00, 0x1FFF, 1.15), (0x2000, 0x2BFF, 1.75),
    (0x2E80, 0xA4CF, 1.0), (0xA800, 0xABFF, 2.0), (0xAC00, 0xD7AF, 1.0), (0xF900, 0xFAFF, 1.0), (0xFDF0, 0xFDFF, 8.0),
    (0xFF00, 0xFFEF, 1.0), (0x10000, 0x1FFFF, 1.75), (0x20000, 0x3FFFF, 1.0),
)  # fmt: skip
"""Ranges of other letters: the first and the last code point, and the largest width that a common font gives them."""

BROAD = 1.55
"""An upper bound on the width of all letters that are in neither table."""


def width(text: str, size: float = 8.0) -> float:
    """Return the width of the longest line of a string, in inches; `size` is the font size in points."""
    return max(sum(map(letter_width, line)) for line in text.split("\n")) * size / 72


def widest(names: Iterable[str], size: float = 8.0) -> float:
    return max((width(name, size) for name in names), default=0.0)


def is_known(text: str) -> bool:
    """Return whether the table has every letter of a string; otherwise `width` is only an upper bound."""
    return all(letter in WIDTHS for letter in text)


def letter_width(letter: str) -> float:
    """Return the width of a letter relative to the font size; an upper bound if it is not in the table."""
    if letter in WIDTHS:
        return WIDTHS[letter]
    code, kind = ord(letter), unicodedata.category(letter)
    if kind in ("Mn", "Cf"):
        return 0.5 if 0x0600 <= code <= 0x06FF else 0.0
    base = unicodedata.normalize("NFD", letter)[0]
    if base in WIDTHS and code < 0x1F00:
        return WIDTHS[base] + 0.2  # room for a hook or a caron beside the letter
    return next((width for first, last, width in SCRIPTS if first <= code <= last), BROAD)


def fit_text(text: str, room: float, size: float = 8.0) -> str:
    """Return a string that is at most `room` inches wide; if it is too wide, its end becomes `…`."""
    while width(text, size) > room and len(text) > 4:
        text = f"{text[:-2].rstrip('…')}…"
    return text
