"""The plots of a sweep as charts: `draw` takes a `Plotted`, and returns a `Chart` for each name, such as `heat`.

The settings that vary decide which plot is drawn: one numeric setting gives lines, two settings give heat maps, and so
on. In this file, an `axis` is the index of a setting in `Plotted.axes`, and an `Axis` is a drawn axis. A key names
a cell of the sweep: it has one label per axis, then the variant, such as `("2", "causal", "looped")`. Lengths are in
inches, and an inch is 72 points.
"""

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
    fit_text,
    number_ticks,
    power_ticks,
    widest,
)
from attn_exp.report.charts.layout import BAR, MapLabels, colour_scale, legend_shapes, weight_maps
from attn_exp.report.escapes import label as short
from attn_exp.report.figures.figure import fit_to_size
from attn_exp.report.pixels import palette
from attn_exp.report.views import SWEEP_CAPTIONS, Head

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FEW = 5
"""With fewer seeds than this, a confidence interval is not useful; the range is shown instead."""

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
"""How many settings must vary for each plot, not counting the seed: the minimum, the maximum, and both in words."""


def refuse_plots(names: Sequence[str], axes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse plots that do not exist, or that cannot be drawn for these axes.

    Raises:
        UserError: there is no such plot, or it needs other axes; the message says which.
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
    """Refuse names of plots that do not exist.

    Raises:
        UserError: there is no plot with one of these names.
    """
    for name in names:
        if name not in SWEEP_CAPTIONS:
            raise UserError(unknown(name, list(SWEEP_CAPTIONS), "plot of a sweep in figures.only"))


@dataclass(frozen=True)
class Numbers:
    """Summary statistics of the numbers in one cell of a sweep, such as one number per seed.

    `squares`: the sum of the squared deviations from the mean.
    `least`, `most`: the range of the numbers.
    `half_width`: half the width of the 95% confidence interval of the mean; NaN for a single number.
    """

    count: int
    mean: float
    squares: float
    least: float
    most: float
    half_width: float


class Change(NamedTuple):
    """The effect of one change of a setting on a metric.

    `mean`: the mean paired difference.
    `low`, `high`: the ends of its interval; NaN if it has none.
    `sure`: whether it is significant.
    """

    label: str
    mean: float
    low: float
    high: float
    sure: bool


class Plotted(NamedTuple):
    """The data of a sweep's plots.

    `axes`, `variants`: the names of the settings that are swept, and of the variants.
    `cells`: for each key (a label on each axis, then a variant), the statistics of each metric.
    `metrics`: the metrics worth drawing, the most important first.
    `changes`: the effects of the settings on each of the first two metrics.
    `layers`: the names of the layers.
    `heads`: for each head pattern, a map `[layer head]`.
    `further`: the names of additional plots.
    `size`: the size of each plot.
    `only`: if it is not empty, only the plots named in it are drawn.
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
        # the indices of the axes with several labels
        return [axis for axis in range(len(self.axes)) if len({key[axis] for key in self.cells}) > 1]


def list_labels(plotted: Plotted, axis: int) -> list[str]:
    """Return the labels of an axis in order of appearance; sorted by number if one of them means no limit."""
    names = list(dict.fromkeys(key[axis] for key in plotted.cells))
    return in_order(names) if ALL in names else names


def is_number(label: str) -> bool:
    return not math.isnan(parse_number(label))


def parse_number(label: str) -> float:
    """Return the number that a label stands for, the middle of a range (`"1..3" -> 2`), and NaN for a word."""
    low, _, high = label.partition("..")
    try:
        return (float(low) + float(high or low)) / 2
    except ValueError:
        return math.nan


def in_order(names: Sequence[str]) -> list[str]:
    """Return labels sorted by number, with `ALL` last; if a label is any other word, keep their order."""
    numbered = all(is_number(name) or name == ALL for name in names)
    return sorted(names, key=lambda name: math.inf if name == ALL else parse_number(name)) if numbered else list(names)


def spaced_by_factors(values: Sequence[float]) -> bool:
    """Return whether sorted numbers suit a logarithmic axis: they grow by factors rather than by equal steps."""
    if len(values) < 3 or values[0] <= 0:
        return False
    steps = [after - before for before, after in itertools.pairwise(values)]
    return max(steps) >= 3 * min(steps) and steps[-1] >= 1.5 * steps[0]


LINES, PANELS, MOST_LINES, MOST_MARKS = 7, 9, 200, 40
"""Maximum number of lines per panel, of panels per plot, of lines in a plot of parallel coordinates, and of marks per
line. More lines in a panel would need colours that are hard to tell apart."""

PANEL = 2.1
"""Minimum width of a panel, in inches."""

MAP = "cividis"
"""A perceptually uniform colour map, which suits the colour-blind and prints well in grey."""

BELOW = 0.45
"""The space below a plot area for its tick labels and the name of its axis, in inches."""

Key = tuple[str, ...]
"""The name of a cell of a sweep: a label on each axis, then the variant."""

Point = tuple[float, float, float, float]
"""A position, the mean there, and the ends of its interval."""

Panel = tuple[str, Sequence[Stroke], Axis, Axis]
"""A title, strokes, and the axes x and y. Their ranges and ticks may be missing: `arrange_panels`, which knows how long
the axes are, completes them with `complete_axis`."""


def draw(plotted: Plotted) -> dict[str, Chart]:
    """Return the plots of a sweep by name: heads and effects if there are any, and the plots that suit its axes.

    `choose_plot` says which plot suits them best, and `further` may name others.
    """
    if not plotted.metrics:
        return {}
    varying = plotted.varying
    names = [name for name, data in (("heads", plotted.heads), ("effects", plotted.changes)) if data]
    for name in dict.fromkeys((choose_plot(plotted), *plotted.further)):
        least, most, _ = NEEDS[name]
        if name not in names and least <= len(varying) <= most and (name != "against" or list_numeric_axes(plotted)):
            names.append(name)
    return {
        name: fit_to_size(partial(PLOTS[name], plotted), plotted.size)
        for name in names
        if name in (plotted.only or names)
    }


def draw_along(plotted: Plotted, metric: str, axes: Sequence[int]) -> Chart:
    """Return a chart of a metric along one setting, with a line for each value of another setting.

    `axes` has one or two axes: the one along x, and the one with a line per value. An index beyond the last axis means
    the variant. A point that is a mean over further settings has no interval.
    """
    x_axis, *line_axes = axes

    def label_line(key: Key) -> str:
        if not line_axes:
            return ""
        (axis,) = line_axes
        return key[-1] if axis == len(plotted.axes) else f"{plotted.axes[axis]}={key[axis]}"

    strokes, y = draw_lines(plotted, metric, x_axis, label_line), Axis(0, 0, name=column_title(metric))
    panels = [("", strokes, make_axis(plotted, x_axis), y)]
    return fit_to_size(lambda width, height: arrange_panels(panels, 1, 2.2, width, height), plotted.size)


def figure(chart: Chart, plotted: Plotted) -> Figure:
    from attn_exp.report.charts import matplotlib_figure  # noqa: PLC0415 - SVG files do not need it

    texts = {text for key in plotted.cells for text in key}
    with matplotlib_figure.style_context({"font.family": matplotlib_figure.choose_fonts(texts, plotted.size.font)}):
        return matplotlib_figure.draw_chart(chart)


def encoded(chart: Chart, form: str, plotted: Plotted) -> bytes:
    if form == "svg" and plotted.size.font == "DejaVu Sans":
        return chart_as_svg(chart)
    from attn_exp.report.charts import matplotlib_figure  # noqa: PLC0415 - as above

    return matplotlib_figure.encode_figure(figure(chart, plotted), form)


def choose_plot(plotted: Plotted) -> str:
    varying = plotted.varying
    if not varying:
        return "spread"
    numeric = list_numeric_axes(plotted)
    if len(varying) == 1:
        return "against" if numeric else "choices"
    panel_count = math.prod(len(list_labels(plotted, axis)) for axis in order_axes(plotted)[1:])
    if numeric and panel_count <= PANELS and (len(varying) == 3 or len(numeric) == 1):
        return "against"
    return "heat" if len(varying) == 2 else "parallel"


def list_numeric_axes(plotted: Plotted) -> list[int]:
    return [axis for axis in plotted.varying if all(map(is_number, list_labels(plotted, axis)))]


def order_axes(plotted: Plotted) -> list[int]:
    """Return the varying axes: first the longest numeric one, which is drawn along x, then those of the panels."""
    x_axis = max(list_numeric_axes(plotted), key=lambda axis: len(list_labels(plotted, axis)), default=-1)
    return sorted(plotted.varying, key=lambda axis: axis != x_axis)


def draw_against(plotted: Plotted, width: float, height: float | None) -> Chart:
    """Return a chart of the metrics against a numeric setting, with a line per variant.

    If no other setting varies, each metric has a panel. Otherwise only the first metric is drawn, with a panel for each
    combination of the other settings.
    """
    x_axis, *panel_axes = order_axes(plotted)
    combinations = list(itertools.product(*(list_labels(plotted, axis) for axis in panel_axes)))
    variants, panels = plotted.variants[:LINES], list[Panel]()
    for metric, combination in itertools.product(plotted.metrics[:1] if panel_axes else plotted.metrics, combinations):
        shown_values = dict(zip(panel_axes, combination, strict=True))

        def label_line(key: Key, shown_values: dict[int, str] = shown_values) -> str | None:
            is_in_panel = all(key[axis] == label for axis, label in shown_values.items())
            return key[-1] if is_in_panel and key[-1] in variants else None

        title = ", ".join(f"{plotted.axes[axis]}={label}" for axis, label in shown_values.items())
        name = column_title(metric) if not (panel_axes and panels) else ""
        strokes = draw_lines(plotted, metric, x_axis, label_line)
        panels.append((title, strokes, make_axis(plotted, x_axis), Axis(0, 0, name=name)))
    if panel_axes:  # all panels share one scale
        low, high = find_range([stroke.y for _, strokes, *_ in panels for stroke in strokes])
        panels = [(title, strokes, x, y._replace(low=low, high=high)) for title, strokes, x, y in panels]
    return arrange_panels(panels, 2 if len(panels) < 5 else 3, 1.3, width, height)


def draw_lines(plotted: Plotted, metric: str, x_axis: int, label_line: Callable[[Key], str | None]) -> list[Stroke]:
    """Return the lines of one panel; `label_line` returns the line to which a cell belongs, None if to no line."""
    positions = map_positions(plotted, x_axis)
    groups: dict[str, dict[float, list[Numbers]]] = {}
    for key, cell in plotted.cells.items():
        label = label_line(key)
        if label is not None and metric in cell:
            groups.setdefault(label, {}).setdefault(positions[key[x_axis]], []).append(cell[metric])
    strokes = list[Stroke]()
    for index, (label, cells_by_x) in enumerate(groups.items()):
        points, colour = sorted(map(average_point, cells_by_x.items())), COLOURS[index % len(COLOURS)]
        marker = MARKERS[index % len(MARKERS)] if len(points) <= MOST_MARKS else ""
        intervals, means = draw_intervals(points, colour, marker, label, upright=True)
        strokes += [intervals, means._replace(width=1.4)]
    return strokes


def map_positions(plotted: Plotted, axis: int) -> dict[str, float]:
    names = list_labels(plotted, axis)
    numeric = all(map(is_number, names))
    return {name: parse_number(name) if numeric else index for index, name in enumerate(names)}


def make_axis(plotted: Plotted, axis: int) -> Axis:
    positions, name = map_positions(plotted, axis), plotted.axes[axis]
    values = sorted(positions.values())
    if not all(map(is_number, positions)):
        return Axis(-0.4, len(values) - 0.6, Ticks(tuple(values), tuple(map(short, positions))), name)
    log, (low, high) = spaced_by_factors(values), find_range([np.array(values)])
    if log:
        margin = (values[-1] / values[0]) ** 0.04
        low, high = values[0] / margin, values[-1] * margin
    ticks = Ticks(tuple(values), tuple(f"{value:g}" for value in values)) if len(values) <= LINES else NO_TICKS
    return Axis(low, high, ticks, name, log)


def average_point(point: tuple[float, Sequence[Numbers]]) -> Point:
    """Return the mean of the cells at one point of a line; if there are several cells, it has no interval."""
    x, cells = point
    mean = sum(cell.mean * cell.count for cell in cells) / sum(cell.count for cell in cells)
    return (x, mean, *(interval_ends(cells[0]) if len(cells) == 1 else (mean, mean)))


def interval_ends(numbers: Numbers) -> tuple[float, float]:
    if numbers.count < FEW:
        return numbers.least, numbers.most
    return numbers.mean - numbers.half_width, numbers.mean + numbers.half_width


def draw_intervals(
    points: Sequence[Point], colour: str, mark: str, label: str = "", *, upright: bool = False
) -> tuple[Stroke, Stroke]:
    """Return two strokes, one for the intervals of some points and one for their means.

    Intervals are vertical if `upright`, otherwise horizontal.
    """
    positions, means, low, high = np.array(points, float).T
    ends = np.stack([low, high, np.full(len(positions), np.nan)], axis=1).ravel()
    # one stroke has all intervals: each goes from low to high, and the NaN after it interrupts the line
    lines, marks = (np.repeat(positions, 3), ends), (positions, means)
    if not upright:
        lines, marks = lines[::-1], marks[::-1]
    return Stroke(*lines, colour, 1.2), Stroke(*marks, colour, mark=mark, size=4.5, label=label)


def draw_choices(plotted: Plotted, width: float, height: float | None) -> Chart:
    """Return a chart of each metric for each value of a non-numeric setting, with one mark per variant."""
    (axis,) = plotted.varying
    names, variants, panels = list_labels(plotted, axis), plotted.variants[:LINES], list[Panel]()
    for metric in plotted.metrics:
        strokes = list[Stroke]()
        for index, variant in enumerate(variants):
            shift = 0.6 * ((index + 0.5) / len(variants) - 0.5)  # variants share the middle 60% of a row
            points = [
                (names.index(key[axis]) + shift, cell[metric].mean, *interval_ends(cell[metric]))
                for key, cell in plotted.cells.items()
                if key[-1] == variant and metric in cell
            ]
            if points:
                strokes += draw_intervals(points, COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)], variant)
        panels.append(("", strokes, Axis(0, 0, name=column_title(metric)), make_name_axis(names)))
    return arrange_panels(panels, 2, max(1.3, 0.16 * len(names)), width, height)


def make_name_axis(names: Sequence[str]) -> Axis:
    """Return an axis with the first name on top."""
    return Axis(len(names) - 0.5, -0.5, Ticks(tuple(range(len(names))), tuple(short(name, 40) for name in names)))


def draw_spread(plotted: Plotted, width: float, height: float | None) -> Chart:
    """Return a chart of the spread of each metric over the seeds: range, mean, and quartiles.

    The quartiles are those of a normal distribution with the same mean and standard deviation.
    """
    rows, panels = {variant: row for row, variant in enumerate(plotted.variants)}, list[Panel]()
    for metric in plotted.metrics:
        ranges, quartiles = list[Point](), list[Point]()
        for key, cell in plotted.cells.items():
            if metric in cell:
                numbers = cell[metric]
                deviation = 0.674 * math.sqrt(numbers.squares / max(1, numbers.count - 1))
                ends = (max(numbers.least, numbers.mean - deviation), min(numbers.most, numbers.mean + deviation))
                ranges.append((rows[key[-1]], numbers.mean, numbers.least, numbers.most))
                quartiles.append((rows[key[-1]], numbers.mean, *ends))
        thick = draw_intervals(quartiles, COLOURS[0], "o")[0]._replace(width=4)
        strokes = [draw_intervals(ranges, GREY, "o")[0], thick, draw_intervals(ranges, "#000000", "o")[1]]
        panels.append(("", strokes, Axis(0, 0, name=column_title(metric)), make_name_axis(list(rows))))
    return arrange_panels(panels, 2, max(0.7, 0.2 * len(rows)), width, height)


def draw_effects(plotted: Plotted, width: float, height: float | None) -> Chart:
    """Return a chart of the effects on each metric, the most important on top: mean differences and their intervals."""
    panels = list[Panel]()
    for metric, changes in plotted.changes.items():
        strokes = [Stroke(np.zeros(2), np.array([-0.5, len(changes) - 0.5]), "#404040", 0.6)]
        for is_significant, colour, name in ((True, COLOURS[0], "significant"), (False, GREY, "not significant")):
            points = [
                (row, change.mean, change.low, change.high)
                for row, change in enumerate(changes)
                if change.sure == is_significant
            ]
            strokes += draw_intervals(points, colour, "o", name) if points else ()
        names = make_name_axis([change.label for change in changes])
        panels.append(("", strokes, Axis(0, 0, name=f"change in the {column_title(metric)}"), names))
    return arrange_panels(panels, 1, 0.2 * max(map(len, plotted.changes.values())), width, height)


def arrange_panels(
    panels: Sequence[Panel], columns: int, panel_height: float, width: float, height: float | None
) -> Chart:
    """Return a chart of panels in a grid, below one legend.

    If a `height` is given, the panels fill it. If not, each plot area is `panel_height` high. A panel has a title, a
    plot area, and the space `BELOW`.
    """
    columns = min(columns, len(panels), max(1, round(width / PANEL)))
    rows = -(-len(panels) // columns)
    strokes_by_label = {stroke.label: stroke for _, strokes, *_ in panels for stroke in strokes if stroke.label}
    # a legend entry is its text and 0.45 inches for the line and the gaps; a row of them is 0.14 inches high
    legend_columns = max(1, min(4, int(width / (0.45 + widest(strokes_by_label)))))
    legend_height = 0.14 * -(-len(strokes_by_label) // legend_columns) if len(strokes_by_label) > 1 else 0.0
    title_height = LINE * (1.3 if any(title for title, *_ in panels) else 0.6)
    if height is not None:
        panel_height = max(0.3, (height - legend_height) / rows - title_height - BELOW)
    legend_strokes = list(strokes_by_label.values()) if legend_height else []
    parts: list[Part] = list(legend_shapes(legend_strokes, legend_columns, 72 * 0.05, 72 * (legend_height + 0.05)))
    panel_width = width / columns
    for index, (title, strokes, x_axis, y_axis) in enumerate(panels):
        row, column = divmod(index, columns)
        # 0.7 inches hold the y labels; x labels are wide, so x gets as many ticks as an axis 0.4 times as long
        x = complete_axis(x_axis, [stroke.x for stroke in strokes], 0.4 * (panel_width - 0.7))
        y = complete_axis(y_axis, [stroke.y for stroke in strokes], panel_height)
        y = y._replace(
            ticks=y.ticks._replace(names=tuple(fit_text(name, 0.5 * panel_width, 7.5) for name in y.ticks.names))
        )
        left = widest(y.ticks.names, 7.5) + 0.12 + (LINE if y.name else 0)
        box = Box(
            panel_width * column + left,
            legend_height + title_height + row * (title_height + panel_height + BELOW),
            panel_width - left - 0.12,
            panel_height,
        )
        unnamed = tuple(stroke._replace(label="") for stroke in strokes)
        parts.append(Plot(box, unnamed, x._replace(name=fit_text(x.name, panel_width)), y))
        parts.append(Text(72 * box.left, 72 * box.top - 6, fit_text(title, box.width)))
    return Chart(width, legend_height + rows * (title_height + panel_height + BELOW), tuple(parts))


def find_range(arrays: Sequence[Array]) -> tuple[float, float]:
    low, high = (float(end(np.concatenate(arrays))) for end in (np.nanmin, np.nanmax))
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def complete_axis(axis: Axis, arrays: Sequence[Array], length: float) -> Axis:
    """Return an axis with a range and ticks.

    An axis from 0 to 0 gets the range of the numbers in `arrays`. An axis without ticks gets round numbers.
    """
    low, high = find_range(arrays) if axis.low == axis.high else (axis.low, axis.high)
    ticks = (power_ticks if axis.log else number_ticks)(low, high, length) if axis.ticks == NO_TICKS else axis.ticks
    return axis._replace(low=low, high=high, ticks=ticks)


def draw_heat_maps(plotted: Plotted, width: float, height: float | None) -> Chart:
    (row_axis, column_axis), metric = plotted.varying, plotted.metrics[0]
    rows, columns = (in_order(list_labels(plotted, axis)) for axis in (row_axis, column_axis))
    matrices = {variant: np.full((len(rows), len(columns)), np.nan) for variant in plotted.variants[:PANELS]}
    for key, cell in plotted.cells.items():
        if key[-1] in matrices and metric in cell:
            matrices[key[-1]][rows.index(key[row_axis]), columns.index(key[column_axis])] = cell[metric].mean
    all_means, name = list(matrices.values()), column_title(metric)
    ends = float(np.nanmin(all_means)), float(np.nanmax(all_means))
    return draw_maps(
        matrices,
        MapLabels(rows, columns, plotted.axes[column_axis], name, plotted.axes[row_axis], *ends, MAP),
        width,
        height,
    )


def draw_heads(plotted: Plotted, width: float, height: float | None) -> Chart:
    head_numbers = [str(head + 1) for head in range(next(iter(plotted.heads.values())).shape[1])]
    names = MapLabels(list(plotted.layers), head_numbers, "head", "share", "layer", colours=MAP)
    return draw_maps(plotted.heads, names, width, height)


def draw_maps(matrices: Arrays, names: MapLabels, width: float, height: float | None) -> Chart:
    heads = [Head(short(title), None, matrix) for title, matrix in matrices.items()]
    short_names = names._replace(rows=list(map(short, names.rows)), columns=list(map(short, names.columns)))
    return weight_maps(heads, short_names, width, 1.0, height)


def draw_parallel(plotted: Plotted, width: float, height: float | None) -> Chart:
    """Return a chart of parallel coordinates: a vertical axis per setting, and a line per cell, coloured by its mean.

    There are at most `MOST_LINES` lines. The labels of an axis are spread evenly from 0, the bottom, to 1.
    """
    metric, axes = plotted.metrics[0], [*plotted.varying, len(plotted.axes)]
    names = [short([*plotted.axes, "variant"][axis]) for axis in axes]
    labels_by_axis = [in_order(list_labels(plotted, axis)) for axis in axes]
    heights = [
        dict(zip(axis_labels, np.linspace(0, 1, len(axis_labels)) if axis_labels[1:] else [0.5], strict=True))
        for axis_labels in labels_by_axis
    ]
    cells = [(key, cell[metric].mean) for key, cell in plotted.cells.items() if metric in cell]
    low, high = min(mean for _, mean in cells), max(mean for _, mean in cells)
    x, strokes = np.arange(len(axes), dtype=float), list[Stroke]()
    for key, mean in cells[:: math.ceil(len(cells) / MOST_LINES)]:
        y = np.array([heights[column][key[axis]] for column, axis in enumerate(axes)])
        colour = palette(MAP)[int(255 * (mean - low) / ((high - low) or 1.0))]
        strokes.append(Stroke(x, y, f"#{bytes(colour.tolist()).hex()}", 1.2))
    box = Box(0.1, 0.15, width - 0.95, 2.1 if height is None else height - 0.15 - BELOW)
    texts = list[Part]()
    for column, axis_labels in enumerate(labels_by_axis):
        strokes.append(Stroke(np.full(2, float(column)), np.array([0.0, 1.0]), "#404040", 0.6))
        for label in axis_labels[:: max(1, len(axis_labels) // 12)]:
            # fractions of the plot's width and height; the x axis drawn below starts at -0.1, the y axis at -0.05
            across, down = (column + 0.1) / (len(labels_by_axis) - 0.4), (1.05 - heights[column][label]) / 1.1
            position = 72 * (box.left + across * box.width) + 5, 72 * (box.top + down * box.height) + 2.5
            texts.append(Text(*position, short(label), 7.5))
    x_axis = Axis(-0.1, len(axes) - 0.5, Ticks(tuple(x.tolist()), tuple(names)))
    bar = Box(width - 0.7, 0.3, BAR, box.height - 0.15)
    scale = colour_scale(bar, high, 1.0, column_title(metric), 0.55, low=low, colours=MAP)
    parts = (Plot(box, tuple(strokes), x_axis, Axis(-0.05, 1.05)), *texts, *scale)
    return Chart(width, 0.15 + box.height + BELOW, parts)


PLOTS = {
    "heads": draw_heads,
    "effects": draw_effects,
    "against": draw_against,
    "choices": draw_choices,
    "heat": draw_heat_maps,
    "parallel": draw_parallel,
    "spread": draw_spread,
}
"""The function that draws each plot; it takes a `Plotted`, the width in inches, and the height or None."""
