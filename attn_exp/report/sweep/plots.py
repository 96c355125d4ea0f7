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
from attn_exp.report.charts.matplotlib_figure import DRAWN_AT, STYLE, drawable, encoded, fonts_for
from attn_exp.report.sweep.explorer import spaced_by_factors
from attn_exp.report.sweep.maps import PANELS, effects, half, heads_by_layer, heat, legend, panels, parallel, same_scale
from attn_exp.report.sweep.plotted import FEW, NEEDS, Numbers, Plotted, is_number, labels, number

__all__ = ["draw", "encoded"]

LINES = 7


def draw(plotted: Plotted) -> dict[str, Figure]:
    """Return the plot of the effects, and the one that fits the axes that vary.

    That is lines or points for one axis, heat maps for two, else coordinates.
    """
    if not plotted.metrics:
        return {}
    with style_of(plotted):
        figures = {"heads": heads_by_layer(plotted)} if plotted.heads else {}
        figures |= {"effects": effects(plotted)} if plotted.changes else {}
        figures |= fitting(plotted)
        for name in plotted.further:
            if name not in figures and name in NEEDS:
                figures |= drawn_by_name(plotted, name)
    return {name: resize(plotted, figure) for name, figure in figures.items() if name in (plotted.only or figures)}


def draw_along(plotted: Plotted, metric: str, places: Sequence[int]) -> Figure:
    """Draw one metric along one setting, with a line for each value of another; a mean over all others has no band."""
    along, *by = places
    names = labels(plotted, along)
    where = {name: number(name) if all(map(is_number, names)) else place for place, name in enumerate(names)}
    groups: dict[str, dict[float, list[Numbers]]] = {}
    for key, cell in plotted.cells.items():
        if metric in cell:
            label = f"{plotted.axes[by[0]]}={key[by[0]]}" if by and by[0] < len(plotted.axes) else key[-1] if by else ""
            groups.setdefault(label, {}).setdefault(where[key[along]], []).append(cell[metric])
    with style_of(plotted):
        figure, (panel,) = panels(plotted.width, 1, 1, 2.6)
        curves(panel, {label: sorted(map(point_of, points.items())) for label, points in groups.items()})
        panel.set_xlabel(drawable([*plotted.axes, "variant"][along]), parse_math=False)
        panel.set_ylabel(titled(metric))
        if all(map(is_number, names)):
            name_numbers(panel, names)
        else:
            panel.set_xticks(range(len(names)), [drawable(name) for name in names], parse_math=False)
        legend(figure, panel)
    return resize(plotted, figure)


def point_of(point: tuple[float, Sequence[Numbers]]) -> tuple[float, float, float, float, bool]:
    """Return one point of a line from the cells that it is the mean of."""
    x, cells = point
    mean = sum(cell.mean * cell.count for cell in cells) / sum(cell.count for cell in cells)
    return (x, mean, *(ends_of(cells[0]) if len(cells) == 1 else (mean, mean)), cells[0].count < FEW)


def style_of(plotted: Plotted) -> AbstractContextManager[None]:
    """Return the style of a sweep's plots, with a font that has all their letters."""
    texts = {text for key in plotted.cells for text in key}
    context: AbstractContextManager[None] = matplotlib.rc_context(
        {"font.family": fonts_for(texts, plotted.size.font)}, STYLE
    )
    return context


def resize(plotted: Plotted, figure: Figure) -> Figure:
    """Return a figure as large as it is shown."""
    zoom = plotted.size.width / plotted.width
    figure.set_dpi(DRAWN_AT * zoom)
    if plotted.size.height is not None:
        figure.set_figheight(plotted.size.height / zoom)
    return figure


def fitting(plotted: Plotted) -> dict[str, Figure]:
    """Return the plot that fits the axes that vary."""
    places = plotted.varying
    if not places:
        return drawn_by_name(plotted, "spread")
    numeric = of_numbers(plotted)
    if len(places) == 1:
        return drawn_by_name(plotted, "against" if numeric else "choices")
    if numeric and few(plotted, in_roles(plotted)[1:]) and (len(places) == 3 or len(numeric) == 1):
        return drawn_by_name(plotted, "against")
    return drawn_by_name(plotted, "heat" if len(places) == 2 else "parallel")


def drawn_by_name(plotted: Plotted, name: str) -> dict[str, Figure]:
    """Return the plot of a name; nothing where the axes that vary cannot be drawn so."""
    least, most, _ = NEEDS[name]
    metrics, places = plotted.metrics, plotted.varying
    if not least <= len(places) <= most or (name == "against" and not of_numbers(plotted)):
        return {}
    draws: dict[str, Callable[[], Figure]] = {
        "against": lambda: against(plotted, metrics, in_roles(plotted)),
        "choices": lambda: choices(plotted, metrics),
        "heat": lambda: heat(plotted, metrics[0], places),
        "parallel": lambda: parallel(plotted, metrics[0], places),
        "spread": lambda: spread(plotted, metrics),
    }
    return {name: draws[name]()} if name in draws else {}


def of_numbers(plotted: Plotted) -> list[int]:
    """Return the varying axes whose values are all numbers."""
    return [place for place in plotted.varying if all(map(is_number, labels(plotted, place)))]


def in_roles(plotted: Plotted) -> list[int]:
    """Return the varying axes, that of the most numbers first: it runs along x, and the others make the panels."""
    along = max(of_numbers(plotted), key=lambda place: len(labels(plotted, place)), default=None)
    return [*([along] if along is not None else []), *(place for place in plotted.varying if place != along)]


def few(plotted: Plotted, places: Sequence[int]) -> bool:
    """Say whether the settings beside the one along x have few enough combinations for a panel each."""
    return math.prod(len(labels(plotted, place)) for place in places) <= PANELS


def against(plotted: Plotted, metrics: Sequence[str], places: Sequence[int]) -> Figure:
    """Draw each metric against one key of numbers, a line per variant; or one, with a panel for each of the others."""
    along, others = places[0], places[1:]
    groups = list(itertools.product(*(labels(plotted, place) for place in others)))
    shown = [(metric, group) for metric in (metrics[:1] if others else metrics) for group in groups]
    figure, axes = panels(plotted.width, len(shown), min(2 if len(shown) < 5 else 3, len(shown)))
    for panel, (metric, group) in zip(axes, shown, strict=True):
        lines = {
            variant: line(plotted, metric, along, variant, dict(zip(others, group, strict=True)))
            for variant in plotted.variants
        }
        (bundle if len(lines) > LINES else curves)(panel, lines)
        panel.set_xlabel(drawable(plotted.axes[along]), parse_math=False)
        if panel is axes[0] or not others:
            panel.set_ylabel(titled(metric))
        name_numbers(panel, labels(plotted, along))
        if group:
            settings = (f"{plotted.axes[place]}={label}" for place, label in zip(others, group, strict=True))
            panel.set_title("\n".join(map(drawable, settings)), parse_math=False, fontsize=8)
    same_scale(axes if others else [])
    legend(figure, axes[0])
    return figure


def name_numbers(panel: Axes, names: Sequence[str]) -> None:
    """Name the values of a key of numbers, if they are few; those that grow by factors stand on a logarithmic axis."""
    if spaced_by_factors(sorted(map(number, names))):
        panel.set_xscale("log")
        panel.xaxis.set_minor_locator(NullLocator())
    if len(names) <= LINES:
        panel.set_xticks([number(name) for name in names], [f"{number(name):g}" for name in names])


def line(
    plotted: Plotted, metric: str, place: int, variant: str, others: Mapping[int, str]
) -> list[tuple[float, float, float, float, bool]]:
    """Return the points of one line: the key's number, the mean, where its interval ends, and if numbers are few.

    Few numbers have no interval worth its name: there it is from the least to the most.
    """
    points = [
        (number(key[place]), cell[metric].mean, *ends_of(cell[metric]), cell[metric].count < FEW)
        for key, cell in plotted.cells.items()
        if key[-1] == variant and metric in cell and all(key[other] == label for other, label in others.items())
    ]
    return sorted(points)


def ends_of(numbers: Numbers) -> tuple[float, float]:
    """Return the ends of the interval of a mean, or the least and the most of few numbers."""
    if numbers.count < FEW:
        return numbers.least, numbers.most
    return numbers.mean - half(numbers), numbers.mean + half(numbers)


def curves(panel: Axes, lines: Mapping[str, Sequence[tuple[float, float, float, float, bool]]]) -> None:
    """Draw a few lines, each with its band, or a stroke where numbers are few; marks part lines that coincide."""
    for place, (name, points) in enumerate(lines.items()):
        if points:
            x, mean, low, high, are_few = np.array(points).T
            colour = COLOURS[place % len(COLOURS)]
            mark = MARKERS[place % len(MARKERS)] if len(points) <= 40 else ""
            panel.plot(
                x, mean, color=colour, marker=mark, markersize=6 - place % 4, fillstyle="none", label=drawable(name)
            )
            if are_few.any():
                panel.vlines(x, low, high, color=colour, linewidth=1, alpha=0.6)
            else:
                panel.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)


def bundle(panel: Axes, lines: Mapping[str, Sequence[tuple[float, float, float, float, bool]]]) -> None:
    """Draw many lines as their median and the bands that hold half and nine tenths of them."""
    by_key: dict[float, list[float]] = {}
    for points in lines.values():
        for key, mean, *_ in points:
            by_key.setdefault(key, []).append(mean)
    x = sorted(by_key)
    bands = np.array([np.quantile(by_key[value], (0.05, 0.25, 0.5, 0.75, 0.95)) for value in x])
    low, lower, middle, upper, high = bands.T
    panel.fill_between(
        x, low, high, color=COLOURS[0], alpha=0.15, linewidth=0, label=f"nine tenths of {len(lines)} variants"
    )
    panel.fill_between(x, lower, upper, color=COLOURS[0], alpha=0.3, linewidth=0, label="half of them")
    panel.plot(x, middle, color=COLOURS[0], label="median")


def choices(plotted: Plotted, metrics: Sequence[str]) -> Figure:
    """Draw each metric at each choice of one key of words, a mark per variant."""
    (place,) = plotted.varying
    names = labels(plotted, place)
    figure, axes = panels(plotted.width, len(metrics), min(2, len(metrics)), max(1.75, 0.16 * len(names) + 0.6))
    variants = plotted.variants[:LINES]
    for panel, metric in zip(axes, metrics, strict=True):
        for order, variant in enumerate(variants):
            cells = {
                key[place]: cell[metric] for key, cell in plotted.cells.items() if key[-1] == variant and metric in cell
            }
            rows = np.array([names.index(name) for name in cells]) + 0.6 * ((order + 0.5) / len(variants) - 0.5)
            panel.errorbar(
                [moments.mean for moments in cells.values()],
                rows,
                xerr=[half(moments) for moments in cells.values()],
                fmt=MARKERS[order % len(MARKERS)],
                color=COLOURS[order % len(COLOURS)],
                markersize=4,
                linewidth=1,
                label=drawable(variant),
            )
        step = max(1, len(names) // 60)
        panel.set_yticks(range(0, len(names), step), [drawable(name) for name in names[::step]], parse_math=False)
        panel.invert_yaxis()
        panel.set_xlabel(titled(metric))
    legend(figure, axes[0])
    return figure


def spread(plotted: Plotted, metrics: Sequence[str]) -> Figure:
    """Draw how each metric spreads over the seeds: range, half of all numbers if they are normal, and the mean."""
    figure, axes = panels(
        plotted.width, len(metrics), min(2, len(metrics)), max(1.2, 0.2 * len(plotted.variants) + 0.6)
    )
    for panel, metric in zip(axes, metrics, strict=True):
        for row, variant in enumerate(plotted.variants):
            moments = next(
                (cell[metric] for key, cell in plotted.cells.items() if key[-1] == variant and metric in cell), None
            )
            if moments is not None:
                deviation = 0.674 * math.sqrt(moments.squares / max(1, moments.count - 1))
                box = [max(moments.least, moments.mean - deviation), min(moments.most, moments.mean + deviation)]
                panel.plot([moments.least, moments.most], [row, row], color="0.6", linewidth=1)
                panel.plot(box, [row, row], color=COLOURS[0], linewidth=5, solid_capstyle="butt")
                panel.plot([moments.mean], [row], "o", color="black", markersize=3)
        panel.set_yticks(range(len(plotted.variants)), [drawable(name) for name in plotted.variants], parse_math=False)
        panel.set_ylim(len(plotted.variants) - 0.5, -0.5)
        panel.set_xlabel(titled(metric))
    return figure
