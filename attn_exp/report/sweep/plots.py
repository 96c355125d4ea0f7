"""The plots of a sweep, chosen by the kind of its axes; drawn from its cells, never from single rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from attn_exp.experiment.row import titled
from attn_exp.report.charts.chart import COLOURS, MARKERS
from attn_exp.report.charts.matplotlib_figure import drawable, encoded, fonts_for, look
from attn_exp.report.sweep.explorer import spaced_by_factors
from attn_exp.report.sweep.maps import (
    PANELS,
    effects,
    heads_by_layer,
    heat,
    legend,
    name_ticks,
    panels,
    parallel,
    title,
)
from attn_exp.report.sweep.plotted import FEW, NEEDS, Numbers, Plotted, is_number, labels, number

__all__ = ["draw", "encoded"]

LINES = 7
"""A panel has at most so many lines: more colours could not be told apart."""

Key = tuple[str, ...]
Point = tuple[float, float, float, float, bool]
"""Where a point of a line stands, its mean, where its interval ends, and whether its numbers are few."""


def draw(plotted: Plotted) -> dict[str, Figure]:
    """Return the plot of the effects, and the one that fits the axes that vary.

    That is lines or points for one axis, heat maps for two, else coordinates.
    """
    if not plotted.metrics:
        return {}
    with style_of(plotted):
        figures = {"heads": heads_by_layer(plotted)} if plotted.heads else {}
        figures |= {"effects": effects(plotted)} if plotted.changes else {}
        for name in dict.fromkeys((fitting(plotted), *plotted.further)):
            figures |= drawn_by_name(plotted, name)
    return {name: figure for name, figure in figures.items() if name in (plotted.only or figures)}


def draw_along(plotted: Plotted, metric: str, places: Sequence[int]) -> Figure:
    """Draw one metric along one setting, with a line for each value of another; a mean over all others has no band."""
    along, *by = places
    names = [*plotted.axes, "variant"]

    def label_of(key: Key) -> str:
        if not by:
            return ""
        return key[-1] if by[0] == len(plotted.axes) else f"{names[by[0]]}={key[by[0]]}"

    with style_of(plotted):
        figure, (panel,) = panels(plotted, 1, 1, 2.6)
        curves(panel, plotted, metric, along, label_of)
        title(panel, "", names[along], titled(metric))
        legend(figure, panel)
    return figure


def style_of(plotted: Plotted) -> AbstractContextManager[None]:
    """Return the style of a sweep's plots, with a font that has all their letters."""
    texts = {text for key in plotted.cells for text in key}
    return look({"font.family": fonts_for(texts, plotted.size.font)}, plotted.zoom)


def fitting(plotted: Plotted) -> str:
    """Return the name of the plot that fits the axes that vary."""
    places = plotted.varying
    if not places:
        return "spread"
    numeric = of_numbers(plotted)
    if len(places) == 1:
        return "against" if numeric else "choices"
    others = math.prod(len(labels(plotted, place)) for place in in_roles(plotted)[1:])
    if numeric and others <= PANELS and (len(places) == 3 or len(numeric) == 1):
        return "against"
    return "heat" if len(places) == 2 else "parallel"


def drawn_by_name(plotted: Plotted, name: str) -> dict[str, Figure]:
    """Return the plot of a name; nothing where the axes that vary cannot be drawn so."""
    metrics, places = plotted.metrics, plotted.varying
    draws: dict[str, Callable[[], Figure]] = {
        "against": lambda: against(plotted, metrics, in_roles(plotted)),
        "choices": lambda: choices(plotted, metrics),
        "heat": lambda: heat(plotted, metrics[0], places),
        "parallel": lambda: parallel(plotted, metrics[0], places),
        "spread": lambda: spread(plotted, metrics),
    }
    least, most, _ = NEEDS[name]
    can = least <= len(places) <= most and (name != "against" or of_numbers(plotted))
    return {name: draws[name]()} if can and name in draws else {}


def of_numbers(plotted: Plotted) -> list[int]:
    """Return the varying axes whose values are all numbers."""
    return [place for place in plotted.varying if all(map(is_number, labels(plotted, place)))]


def in_roles(plotted: Plotted) -> list[int]:
    """Return the varying axes, that of the most numbers first: it runs along x, and the others make the panels."""
    along = max(of_numbers(plotted), key=lambda place: len(labels(plotted, place)), default=-1)
    return sorted(plotted.varying, key=lambda place: place != along)


def against(plotted: Plotted, metrics: Sequence[str], places: Sequence[int]) -> Figure:
    """Draw each metric against one key of numbers, a line per variant; or one, with a panel for each of the others."""
    along, others = places[0], places[1:]
    groups = list(itertools.product(*(labels(plotted, place) for place in others)))
    shown = [(metric, group) for metric in (metrics[:1] if others else metrics) for group in groups]
    figure, axes = panels(plotted, len(shown), min(2 if len(shown) < 5 else 3, len(shown)))
    variants = plotted.variants[:LINES]
    for panel, (metric, group) in zip(axes, shown, strict=True):
        chosen = dict(zip(others, group, strict=True))

        def label_of(key: Key, chosen: Mapping[int, str] = chosen) -> str | None:
            is_here = all(key[place] == label for place, label in chosen.items())
            return key[-1] if is_here and key[-1] in variants else None

        curves(panel, plotted, metric, along, label_of)
        said = "\n".join(f"{plotted.axes[place]}={label}" for place, label in chosen.items())
        title(panel, said, plotted.axes[along], titled(metric) if panel is axes[0] or not others else "")
    if others:  # panels that are compared have one scale, with room for marks at the ends
        low, high = min(panel.get_ylim()[0] for panel in axes), max(panel.get_ylim()[1] for panel in axes)
        for panel in axes:
            panel.set_ylim(low - 0.04 * (high - low), high + 0.04 * (high - low))
    left_out = len(plotted.variants) - len(variants)
    legend(figure, axes[0], f"the first {LINES} of {len(plotted.variants)} variants" if left_out else "")
    return figure


def curves(panel: Axes, plotted: Plotted, metric: str, along: int, label_of: Callable[[Key], str | None]) -> None:
    """Draw one metric along a setting, a line for each label, with its band, or a stroke where numbers are few."""
    names = labels(plotted, along)
    numeric = all(map(is_number, names))
    where = {name: number(name) if numeric else place for place, name in enumerate(names)}
    groups: dict[str, dict[float, list[Numbers]]] = {}
    for key, cell in plotted.cells.items():
        label = label_of(key)
        if label is not None and metric in cell:
            groups.setdefault(label, {}).setdefault(where[key[along]], []).append(cell[metric])
    for place, (label, cells) in enumerate(groups.items()):
        x, mean, low, high, are_few = np.array(sorted(map(point_of, cells.items()))).T
        colour = COLOURS[place % len(COLOURS)]
        panel.plot(
            x, mean, color=colour, marker=MARKERS[place % len(MARKERS)] if len(x) <= 40 else "", fillstyle="none",
            markersize=matplotlib.rcParams["lines.markersize"] * (1 - place % 4 / 6), label=drawable(label),
        )  # fmt: skip
        if are_few.any():
            panel.vlines(x, low, high, color=colour, alpha=0.6)
        else:
            panel.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    if numeric and spaced_by_factors(sorted(where.values())):
        panel.set_xscale("log")
        panel.xaxis.set_minor_locator(NullLocator())
    if not numeric:
        name_ticks(panel.xaxis, names)
    elif len(names) <= LINES:
        panel.set_xticks(list(where.values()), [f"{value:g}" for value in where.values()])


def point_of(point: tuple[float, Sequence[Numbers]]) -> Point:
    """Return one point of a line from the cells that it is the mean of; that of several has no interval."""
    x, cells = point
    mean = sum(cell.mean * cell.count for cell in cells) / sum(cell.count for cell in cells)
    return (x, mean, *(ends_of(cells[0]) if len(cells) == 1 else (mean, mean)), cells[0].count < FEW)


def ends_of(numbers: Numbers) -> tuple[float, float]:
    """Return the ends of the interval of a mean, or the least and the most of few numbers."""
    if numbers.count < FEW:
        return numbers.least, numbers.most
    return numbers.mean - numbers.half_width, numbers.mean + numbers.half_width


def choices(plotted: Plotted, metrics: Sequence[str]) -> Figure:
    """Draw each metric at each choice of one key of words, a mark per variant."""
    (place,) = plotted.varying
    names, variants = labels(plotted, place), plotted.variants[:LINES]
    figure, axes = panels(plotted, len(metrics), min(2, len(metrics)), max(1.75, 0.16 * len(names) + 0.6))
    for panel, metric in zip(axes, metrics, strict=True):
        for order, variant in enumerate(variants):
            cells = [
                (key[place], cell[metric])
                for key, cell in plotted.cells.items()
                if key[-1] == variant and metric in cell
            ]
            aside = 0.6 * ((order + 0.5) / len(variants) - 0.5)
            panel.errorbar(
                [numbers.mean for _, numbers in cells], [names.index(name) + aside for name, _ in cells],
                xerr=np.nan_to_num([numbers.half_width for _, numbers in cells]), fmt=MARKERS[order % len(MARKERS)],
                color=COLOURS[order % len(COLOURS)], label=drawable(variant),
            )  # fmt: skip
        name_ticks(panel.yaxis, names)
        panel.invert_yaxis()
        title(panel, x=titled(metric))
    legend(figure, axes[0])
    return figure


def spread(plotted: Plotted, metrics: Sequence[str]) -> Figure:
    """Draw how each metric spreads over the seeds: range, half of all numbers if they are normal, and the mean."""
    rows = {variant: row for row, variant in enumerate(plotted.variants)}
    figure, axes = panels(plotted, len(metrics), min(2, len(metrics)), max(1.2, 0.2 * len(rows) + 0.6))
    for panel, metric in zip(axes, metrics, strict=True):
        for key, cell in plotted.cells.items():
            if metric in cell:
                numbers, height = cell[metric], [rows[key[-1]]] * 2
                deviation = 0.674 * math.sqrt(numbers.squares / max(1, numbers.count - 1))
                half = [max(numbers.least, numbers.mean - deviation), min(numbers.most, numbers.mean + deviation)]
                panel.plot([numbers.least, numbers.most], height, color="0.6")
                panel.plot(half, height, color=COLOURS[0], linewidth=4 * plotted.zoom, solid_capstyle="butt")
                panel.plot([numbers.mean], height[:1], "o", color="black")
        name_ticks(panel.yaxis, list(rows))
        panel.set_ylim(len(rows) - 0.5, -0.5)
        title(panel, x=titled(metric))
    return figure
