"""The plots of a sweep as charts. They are chosen by the types of its axes, and drawn from its cells, not its rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array, Arrays
from attn_exp.config.schema import PRESETS, Size
from attn_exp.errors import UserError, unknown
from attn_exp.experiment.row import column_title
from attn_exp.report.charts import chart_as_svg
from attn_exp.report.charts.chart import (
    COLOURS,
    GREY,
    LINE,
    MARKERS,
    NO_TICKS,
    Axis,
    Box,
    Chart,
    Part,
    Plot,
    Stroke,
    Text,
    Ticks,
    fitted,
    number_ticks,
    power_ticks,
    widest,
)
from attn_exp.report.charts.layout import BAR, Named, colour_scale, legend_shapes, weight_maps
from attn_exp.report.escapes import label as short
from attn_exp.report.figures.figure import planned
from attn_exp.report.pixels import palette
from attn_exp.report.views import SWEEP_CAPTIONS, Head

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FEW = 5
"""With fewer seeds than this, a confidence interval is not useful."""

ALL = "all"
"""The label of a value that means no limit, such as -1 for a window; it sorts after all numbers."""

NEEDS = {
    "effects": (1, 99, "a setting that varies"),
    "against": (1, 3, "one to three settings that vary, one of them numeric"),
    "choices": (1, 1, "one setting that varies"),
    "heat": (2, 2, "two settings that vary"),
    "parallel": (2, 99, "two or more settings that vary"),
    "spread": (0, 99, "results"),
}
"""For each plot, the minimum and maximum number of settings that vary (besides the seed), and the same in words."""


def refuse_plots(names: Sequence[str], axes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse plots that do not exist, or that cannot be drawn for these axes.

    Raises:
        UserError: a plot is unknown, or does not suit the axes; the message says what it needs.
    """
    varying = [axis for axis in axes if axis["key"] != "seed" and axis["count"] > 1]
    numeric = [axis for axis in varying if axis["kind"] in ("int", "float")]
    for name in names:
        if name not in NEEDS:
            raise UserError(unknown(name, list(NEEDS), "plot in sweep.plot"))
        least, most, need = NEEDS[name]
        if not least <= len(varying) <= most or (name == "against" and not numeric):
            keys = ", ".join(axis["key"] for axis in varying) or "none"
            raise UserError(f"sweep.plot={name} needs {need}; this sweep varies: {keys}")


def refuse_unknown(names: Sequence[str]) -> None:
    """Refuse unknown names of plots.

    Raises:
        UserError: a name is unknown.
    """
    for name in names:
        if name not in SWEEP_CAPTIONS:
            raise UserError(unknown(name, list(SWEEP_CAPTIONS), "plot of a sweep in figures.only"))


@dataclass(frozen=True)
class Numbers:
    """Summary statistics of the numbers in one cell of a sweep, such as those of its seeds.

    `squares` is the sum of squared deviations from the mean, and `half_width` half the width of its 95% confidence
    interval, NaN for a single number.
    """

    count: int
    mean: float
    squares: float
    least: float
    most: float
    half_width: float


class Change(NamedTuple):
    """The effect of one change of a setting on a metric: the mean paired difference, and whether it is significant.

    `low` and `high` are the ends of its interval, NaN if it has none.
    """

    label: str
    mean: float
    low: float
    high: float
    sure: bool


class Plotted(NamedTuple):
    """The data of a sweep's plots.

    `cells` maps a label on each of the `axes`, and a variant, to the statistics of each metric. `metrics` are those
    worth drawing, the most important first; `changes` has the effects on each of the first two. `heads` has a map
    `[layer head]` of each head pattern in the `layers`. `further` names additional plots; if `only` is not empty, no
    other plots are drawn. `size` is the size of each plot.
    """

    axes: Sequence[str]
    variants: Sequence[str]
    cells: Mapping[tuple[str, ...], Mapping[str, Numbers]]
    metrics: Sequence[str]
    changes: Mapping[str, Sequence[Change]]
    layers: Sequence[str]
    heads: Arrays
    further: Sequence[str] = ()
    size: Size = PRESETS["paper"]
    only: Sequence[str] = ()

    @property
    def varying(self) -> list[int]:
        return [place for place in range(len(self.axes)) if len({key[place] for key in self.cells}) > 1]


def labels(plotted: Plotted, place: int) -> list[str]:
    """Return the labels of an axis in order of appearance, or by number if one of them means no limit."""
    names = list(dict.fromkeys(key[place] for key in plotted.cells))
    return in_order(names) if ALL in names else names


def is_number(label: str) -> bool:
    return not math.isnan(number(label))


def number(label: str) -> float:
    """Convert a label to a number: the middle of a range such as `1..3`, and NaN for a word."""
    low, _, high = label.partition("..")
    try:
        return (float(low) + float(high or low)) / 2
    except ValueError:
        return math.nan


def in_order(names: Sequence[str]) -> list[str]:
    """Sort labels by number, with "no limit" last; if any label is a word, keep their order."""
    numbered = all(is_number(name) or name == ALL for name in names)
    return sorted(names, key=lambda name: math.inf if name == ALL else number(name)) if numbered else list(names)


def spaced_by_factors(values: Sequence[float]) -> bool:
    """Return whether sorted numbers grow by factors rather than by steps, so that they suit a logarithmic axis."""
    if len(values) < 3 or values[0] <= 0:
        return False
    steps = [after - before for before, after in itertools.pairwise(values)]
    return max(steps) >= 3 * min(steps) and steps[-1] >= 1.5 * steps[0]


LINES, PANELS, MOST_LINES, MOST_MARKS = 7, 9, 200, 40
"""Maximum number of lines per panel (more colours cannot be told apart), of panels per plot, of lines in a plot of
parallel coordinates, and of marks per line."""

PANEL = 2.1
"""Minimum width of a panel, in inches."""

MAP = "cividis"
"""A perceptually uniform colour map, which suits the colour-blind and prints well in grey."""

BELOW = 0.45
"""The space below a panel for its tick labels and the name of its axis, in inches."""

Key = tuple[str, ...]
Point = tuple[float, float, float, float]
"""A position, the mean there, and the ends of its interval."""


Panel = tuple[str, Sequence[Stroke], Axis, Axis]
"""A title, strokes and two axes. An axis without ticks gets numbers; one from 0 to 0 gets the range of the strokes."""


def draw(plotted: Plotted) -> dict[str, Chart]:
    """Return the plots of a sweep by name: the effects, and the plot that suits the axes that vary.

    `fitting` chooses that plot: lines, points, heat maps, parallel coordinates, or the spread over the seeds.
    """
    if not plotted.metrics:
        return {}
    places = plotted.varying
    names = [name for name, there in (("heads", plotted.heads), ("effects", plotted.changes)) if there]
    for name in dict.fromkeys((fitting(plotted), *plotted.further)):
        least, most, _ = NEEDS[name]
        if name not in names and least <= len(places) <= most and (name != "against" or numeric_axes(plotted)):
            names.append(name)
    return {
        name: planned(partial(PLOTS[name], plotted), plotted.size) for name in names if name in (plotted.only or names)
    }


def draw_along(plotted: Plotted, metric: str, places: Sequence[int]) -> Chart:
    """Draw a metric along one setting, with a line for each value of another.

    Means over other settings have no intervals.
    """
    along, *by = places
    names = [*plotted.axes, "variant"]

    def label_of(key: Key) -> str:
        if not by:
            return ""
        return key[-1] if by[0] == len(plotted.axes) else f"{names[by[0]]}={key[by[0]]}"

    strokes, y = curves(plotted, metric, along, label_of), Axis(0, 0, name=column_title(metric))
    panels = [("", strokes, axis_along(plotted, along), y)]
    return planned(lambda width, height: in_panels(panels, 1, 2.2, width, height), plotted.size)


def figure(chart: Chart, plotted: Plotted) -> Figure:
    from attn_exp.report.charts import matplotlib_figure as ours  # noqa: PLC0415 - SVG files do not need it

    texts = {text for key in plotted.cells for text in key}
    with ours.look({"font.family": ours.fonts_for(texts, plotted.size.font)}):
        return ours.figure_of(chart)


def encoded(chart: Chart, form: str, plotted: Plotted) -> bytes:
    if form == "svg" and plotted.size.font == "DejaVu Sans":
        return chart_as_svg(chart)
    from attn_exp.report.charts import matplotlib_figure as ours  # noqa: PLC0415 - as above

    return ours.encoded(figure(chart, plotted), form)


def fitting(plotted: Plotted) -> str:
    places = plotted.varying
    if not places:
        return "spread"
    numeric = numeric_axes(plotted)
    if len(places) == 1:
        return "against" if numeric else "choices"
    others = math.prod(len(labels(plotted, place)) for place in axes_by_role(plotted)[1:])
    if numeric and others <= PANELS and (len(places) == 3 or len(numeric) == 1):
        return "against"
    return "heat" if len(places) == 2 else "parallel"


def numeric_axes(plotted: Plotted) -> list[int]:
    return [place for place in plotted.varying if all(map(is_number, labels(plotted, place)))]


def axes_by_role(plotted: Plotted) -> list[int]:
    """Return the varying axes: first the one along x, the longest numeric axis, then those of the panels."""
    along = max(numeric_axes(plotted), key=lambda place: len(labels(plotted, place)), default=-1)
    return sorted(plotted.varying, key=lambda place: place != along)


def against(plotted: Plotted, width: float, height: float | None) -> Chart:
    """Draw each metric against a numeric setting, a line per variant; other settings become panels of one metric."""
    along, *others = axes_by_role(plotted)
    groups = list(itertools.product(*(labels(plotted, place) for place in others)))
    variants, panels = plotted.variants[:LINES], list[Panel]()
    for metric, group in itertools.product(plotted.metrics[:1] if others else plotted.metrics, groups):
        chosen = dict(zip(others, group, strict=True))

        def label_of(key: Key, chosen: dict[int, str] = chosen) -> str | None:
            is_here = all(key[place] == label for place, label in chosen.items())
            return key[-1] if is_here and key[-1] in variants else None

        title = ", ".join(f"{plotted.axes[place]}={label}" for place, label in chosen.items())
        name = column_title(metric) if not (others and panels) else ""
        strokes = curves(plotted, metric, along, label_of)
        panels.append((title, strokes, axis_along(plotted, along), Axis(0, 0, name=name)))
    if others:  # all panels share one scale
        low, high = range_of([stroke.y for _, strokes, *_ in panels for stroke in strokes])
        panels = [(title, strokes, x, y._replace(low=low, high=high)) for title, strokes, x, y in panels]
    return in_panels(panels, 2 if len(panels) < 5 else 3, 1.3, width, height)


def curves(plotted: Plotted, metric: str, along: int, label_of: Callable[[Key], str | None]) -> list[Stroke]:
    where = places_along(plotted, along)
    groups: dict[str, dict[float, list[Numbers]]] = {}
    for key, cell in plotted.cells.items():
        label = label_of(key)
        if label is not None and metric in cell:
            groups.setdefault(label, {}).setdefault(where[key[along]], []).append(cell[metric])
    strokes = list[Stroke]()
    for place, (label, cells) in enumerate(groups.items()):
        points, colour = sorted(map(point_of, cells.items())), COLOURS[place % len(COLOURS)]
        mark = MARKERS[place % len(MARKERS)] if len(points) <= MOST_MARKS else ""
        interval, marks = bars(points, colour, mark, label, upright=True)
        strokes += [interval, marks._replace(width=1.4)]
    return strokes


def places_along(plotted: Plotted, along: int) -> dict[str, float]:
    names = labels(plotted, along)
    numeric = all(map(is_number, names))
    return {name: number(name) if numeric else place for place, name in enumerate(names)}


def axis_along(plotted: Plotted, along: int) -> Axis:
    where, name = places_along(plotted, along), plotted.axes[along]
    values = sorted(where.values())
    if not all(map(is_number, where)):
        return Axis(-0.4, len(values) - 0.6, Ticks(tuple(values), tuple(map(short, where))), name)
    log, (low, high) = spaced_by_factors(values), range_of([np.array(values)])
    if log:
        margin = (values[-1] / values[0]) ** 0.04
        low, high = values[0] / margin, values[-1] * margin
    few = Ticks(tuple(values), tuple(f"{value:g}" for value in values)) if len(values) <= LINES else NO_TICKS
    return Axis(low, high, few, name, log)


def point_of(point: tuple[float, Sequence[Numbers]]) -> Point:
    """Average the cells at one point of a line; an average of several cells has no interval."""
    x, cells = point
    mean = sum(cell.mean * cell.count for cell in cells) / sum(cell.count for cell in cells)
    return (x, mean, *(ends_of(cells[0]) if len(cells) == 1 else (mean, mean)))


def ends_of(numbers: Numbers) -> tuple[float, float]:
    if numbers.count < FEW:
        return numbers.least, numbers.most
    return numbers.mean - numbers.half_width, numbers.mean + numbers.half_width


def bars(
    points: Sequence[Point], colour: str, mark: str, label: str = "", *, upright: bool = False
) -> tuple[Stroke, Stroke]:
    """Return two strokes, the intervals and the means of some points; the intervals are vertical if `upright`."""
    at, mean, low, high = np.array(points, float).T
    ends = np.stack([low, high, np.full(len(at), np.nan)], axis=1).ravel()
    lines, marks = (np.repeat(at, 3), ends), (at, mean)
    if not upright:
        lines, marks = lines[::-1], marks[::-1]
    return Stroke(*lines, colour, 1.2), Stroke(*marks, colour, mark=mark, size=4.5, label=label)


def choices(plotted: Plotted, width: float, height: float | None) -> Chart:
    """Draw each metric for each value of a non-numeric setting, with one mark per variant."""
    (place,) = plotted.varying
    names, variants, panels = labels(plotted, place), plotted.variants[:LINES], list[Panel]()
    for metric in plotted.metrics:
        strokes = list[Stroke]()
        for order, variant in enumerate(variants):
            aside = 0.6 * ((order + 0.5) / len(variants) - 0.5)
            points = [
                (names.index(key[place]) + aside, cell[metric].mean, *ends_of(cell[metric]))
                for key, cell in plotted.cells.items()
                if key[-1] == variant and metric in cell
            ]
            if points:
                strokes += bars(points, COLOURS[order % len(COLOURS)], MARKERS[order % len(MARKERS)], variant)
        panels.append(("", strokes, Axis(0, 0, name=column_title(metric)), axis_of_names(names)))
    return in_panels(panels, 2, max(1.3, 0.16 * len(names)), width, height)


def axis_of_names(names: Sequence[str]) -> Axis:
    return Axis(len(names) - 0.5, -0.5, Ticks(tuple(range(len(names))), tuple(short(name, 40) for name in names)))


def spread(plotted: Plotted, width: float, height: float | None) -> Chart:
    """Draw the spread of each metric over the seeds: range, mean, and the quartiles of a normal distribution."""
    rows, panels = {variant: row for row, variant in enumerate(plotted.variants)}, list[Panel]()
    for metric in plotted.metrics:
        whole, half = list[Point](), list[Point]()
        for key, cell in plotted.cells.items():
            if metric in cell:
                numbers = cell[metric]
                deviation = 0.674 * math.sqrt(numbers.squares / max(1, numbers.count - 1))
                ends = (max(numbers.least, numbers.mean - deviation), min(numbers.most, numbers.mean + deviation))
                whole.append((rows[key[-1]], numbers.mean, numbers.least, numbers.most))
                half.append((rows[key[-1]], numbers.mean, *ends))
        thick = bars(half, COLOURS[0], "o")[0]._replace(width=4)
        strokes = [bars(whole, GREY, "o")[0], thick, bars(whole, "#000000", "o")[1]]
        panels.append(("", strokes, Axis(0, 0, name=column_title(metric)), axis_of_names(list(rows))))
    return in_panels(panels, 2, max(0.7, 0.2 * len(rows)), width, height)


def effects(plotted: Plotted, width: float, height: float | None) -> Chart:
    """Draw the effects on each metric, the most important on top: the mean difference and its interval, if any."""
    panels = list[Panel]()
    for metric, lines in plotted.changes.items():
        strokes = [Stroke(np.zeros(2), np.array([-0.5, len(lines) - 0.5]), "#404040", 0.6)]
        for sure, colour, name in ((True, COLOURS[0], "significant"), (False, GREY, "not significant")):
            points = [(row, line.mean, line.low, line.high) for row, line in enumerate(lines) if line.sure == sure]
            strokes += bars(points, colour, "o", name) if points else ()
        names = axis_of_names([line.label for line in lines])
        panels.append(("", strokes, Axis(0, 0, name=f"change in the {column_title(metric)}"), names))
    return in_panels(panels, 1, 0.2 * max(map(len, plotted.changes.values())), width, height)


def in_panels(panels: Sequence[Panel], across: int, high: float, width: float, height: float | None) -> Chart:
    """Arrange panels in a grid below one legend; if a height is given, the panels fill it."""
    across = min(across, len(panels), max(1, round(width / PANEL)))
    down = -(-len(panels) // across)
    entries = {stroke.label: stroke for _, strokes, *_ in panels for stroke in strokes if stroke.label}
    columns = max(1, min(4, int(width / (0.45 + widest(entries)))))
    legend = 0.14 * -(-len(entries) // columns) if len(entries) > 1 else 0.0
    above = LINE * (1.3 if any(title for title, *_ in panels) else 0.6)
    if height is not None:
        high = max(0.3, (height - legend) / down - above - BELOW)
    named = list(entries.values()) if legend else []
    parts: list[Part] = list(legend_shapes(named, columns, 72 * 0.05, 72 * (legend + 0.05)))
    each = width / across
    for place, (title, strokes, along, upward) in enumerate(panels):
        row, column = divmod(place, across)
        x = with_numbers(along, [stroke.x for stroke in strokes], 0.4 * (each - 0.7))
        y = with_numbers(upward, [stroke.y for stroke in strokes], high)
        y = y._replace(ticks=y.ticks._replace(names=tuple(fitted(name, 0.5 * each, 7.5) for name in y.ticks.names)))
        left = widest(y.ticks.names, 7.5) + 0.12 + (LINE if y.name else 0)
        box = Box(each * column + left, legend + above + row * (above + high + BELOW), each - left - 0.12, high)
        unnamed = tuple(stroke._replace(label="") for stroke in strokes)
        parts.append(Plot(box, unnamed, x._replace(name=fitted(x.name, each)), y))
        parts.append(Text(72 * box.left, 72 * box.top - 6, fitted(title, box.width)))
    return Chart(width, legend + down * (above + high + BELOW), tuple(parts))


def range_of(arrays: Sequence[Array]) -> tuple[float, float]:
    low, high = (float(end(np.concatenate(arrays))) for end in (np.nanmin, np.nanmax))
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def with_numbers(axis: Axis, arrays: Sequence[Array], length: float) -> Axis:
    low, high = range_of(arrays) if axis.low == axis.high else (axis.low, axis.high)
    ticks = (power_ticks if axis.log else number_ticks)(low, high, length) if axis.ticks == NO_TICKS else axis.ticks
    return axis._replace(low=low, high=high, ticks=ticks)


def heat(plotted: Plotted, width: float, height: float | None) -> Chart:
    (down, across), metric = plotted.varying, plotted.metrics[0]
    rows, columns = (in_order(labels(plotted, place)) for place in (down, across))
    found = {variant: np.full((len(rows), len(columns)), np.nan) for variant in plotted.variants[:PANELS]}
    for key, cell in plotted.cells.items():
        if key[-1] in found and metric in cell:
            found[key[-1]][rows.index(key[down]), columns.index(key[across])] = cell[metric].mean
    means, name = list(found.values()), column_title(metric)
    ends = float(np.nanmin(means)), float(np.nanmax(means))
    return maps(found, Named(rows, columns, plotted.axes[across], name, plotted.axes[down], *ends, MAP), width, height)


def heads_by_layer(plotted: Plotted, width: float, height: float | None) -> Chart:
    heads = [str(head + 1) for head in range(next(iter(plotted.heads.values())).shape[1])]
    named = Named(list(plotted.layers), heads, "head", "share", "layer", colours=MAP)
    return maps(plotted.heads, named, width, height)


def maps(named: Arrays, names: Named, width: float, height: float | None) -> Chart:
    heads = [Head(short(title), None, matrix) for title, matrix in named.items()]
    shown = names._replace(rows=list(map(short, names.rows)), columns=list(map(short, names.columns)))
    return weight_maps(heads, shown, width, 1.0, height)


def parallel(plotted: Plotted, width: float, height: float | None) -> Chart:
    """Draw a vertical axis per setting and a line per combination, coloured by its mean; at most `MOST_LINES` lines."""
    metric, places = plotted.metrics[0], [*plotted.varying, len(plotted.axes)]
    names = [short([*plotted.axes, "variant"][place]) for place in places]
    orders = [in_order(labels(plotted, place)) for place in places]
    heights = [dict(zip(order, np.linspace(0, 1, len(order)) if order[1:] else [0.5], strict=True)) for order in orders]
    cells = [(key, cell[metric].mean) for key, cell in plotted.cells.items() if metric in cell]
    low, top = min(mean for _, mean in cells), max(mean for _, mean in cells)
    x, strokes = np.arange(len(places), dtype=float), list[Stroke]()
    for key, mean in cells[:: math.ceil(len(cells) / MOST_LINES)]:
        y = np.array([heights[at][key[place]] for at, place in enumerate(places)])
        colour = palette(MAP)[int(255 * (mean - low) / ((top - low) or 1.0))]
        strokes.append(Stroke(x, y, f"#{bytes(colour.tolist()).hex()}", 1.2))
    box = Box(0.1, 0.15, width - 0.95, 2.1 if height is None else height - 0.15 - BELOW)
    texts = list[Part]()
    for at, order in enumerate(orders):
        strokes.append(Stroke(np.full(2, float(at)), np.array([0.0, 1.0]), "#404040", 0.6))
        for label in order[:: max(1, len(order) // 12)]:
            across, down = (at + 0.1) / (len(orders) - 0.4), (1.05 - heights[at][label]) / 1.1
            place = 72 * (box.left + across * box.width) + 5, 72 * (box.top + down * box.height) + 2.5
            texts.append(Text(*place, short(label), 7.5))
    x_axis = Axis(-0.1, len(places) - 0.5, Ticks(tuple(x.tolist()), tuple(names)))
    bar = Box(width - 0.7, 0.3, BAR, box.height - 0.15)
    scale = colour_scale(bar, top, 1.0, column_title(metric), 0.55, low=low, colours=MAP)
    parts = (Plot(box, tuple(strokes), x_axis, Axis(-0.05, 1.05)), *texts, *scale)
    return Chart(width, 0.15 + box.height + BELOW, parts)


PLOTS = {
    "heads": heads_by_layer,
    "effects": effects,
    "against": against,
    "choices": choices,
    "heat": heat,
    "parallel": parallel,
    "spread": spread,
}
"""The plots by name; each function takes the width in inches, and the height or None."""
