"""The plots of a sweep, chosen by the kind of its axes; drawn from the summary's cells, never from single rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attn_exp.report.drawing import COLOURS, MARKERS, STYLE, encoded
from attn_exp.report.lettering import drawable, fonts_for
from attn_exp.sweep import forest
from attn_exp.sweep.maps import PANELS, heat, parallel
from attn_exp.sweep.overview import varying, worth_plotting
from attn_exp.sweep.panels import half, is_number, labels, legend, number, panels, same_scale, spoken
from attn_exp.sweep.totals import Summary

__all__ = ["draw", "encoded"]

LINES = 7


def draw(about: Mapping[str, Any], summary: Summary) -> dict[str, Figure]:
    """Return the plot of the effects, and the one that fits the axes that vary.

    That is lines or points for one axis, heat maps for two, else coordinates.
    """
    metrics, places = worth_plotting(summary), varying(summary)
    if not metrics:
        return {}
    texts = {text for key in summary.cells for text in key}
    with matplotlib.rc_context({"font.family": fonts_for(texts)}, STYLE):
        effects = forest.effects(summary.answers, metrics[:2])
        return ({"effects": effects} if effects else {}) | fitting(summary, metrics, places)


def fitting(summary: Summary, metrics: Sequence[str], places: Sequence[int]) -> dict[str, Figure]:
    """Return the plot that fits the axes that vary."""
    if not places:
        return {"spread": spread(summary, metrics)}
    numeric = [place for place in places if all(map(is_number, labels(summary, place)))]
    if len(places) == 1:
        return {"against": against(summary, metrics, places)} if numeric else {"choices": choices(summary, metrics)}
    if len(places) == 2 and len(numeric) == 1 and few(summary, places, numeric):
        order = [*numeric, *(place for place in places if place not in numeric)]
        return {"against": against(summary, metrics, order)}
    if len(places) == 2:
        return {"heat": heat(summary, metrics[0], places)}
    return {"parallel": parallel(summary, metrics[0], places)}


def few(summary: Summary, places: Sequence[int], numeric: Sequence[int]) -> bool:
    """Say whether the axis that is no number has few enough choices for a panel each."""
    return all(len(labels(summary, place)) <= PANELS for place in places if place not in numeric)


def against(summary: Summary, metrics: Sequence[str], places: Sequence[int]) -> Figure:
    """Draw each metric against one key of numbers, a line per variant; a panel for each choice of a second key."""
    groups = labels(summary, places[1]) if len(places) > 1 else [None]
    shown = [(metric, group) for metric in (metrics if groups == [None] else metrics[:1]) for group in groups]
    figure, axes = panels(len(shown), min(2, len(shown)))
    for panel, (metric, group) in zip(axes, shown, strict=True):
        lines = {variant: line(summary, metric, places[0], variant, places[1:], group) for variant in summary.variants}
        (bundle if len(lines) > LINES else curves)(panel, lines)
        panel.set_xlabel(drawable(summary.axes[places[0]]), parse_math=False)
        panel.set_ylabel(spoken(metric))
        if len(labels(summary, places[0])) <= LINES:
            panel.set_xticks([number(label) for label in labels(summary, places[0])], labels(summary, places[0]))
        if group is not None:
            panel.set_title(drawable(f"{summary.axes[places[1]]}={group}"), parse_math=False)
    same_scale(axes if groups != [None] else [])
    legend(figure, axes[0])
    return figure


def line(
    summary: Summary, metric: str, place: int, variant: str, other: Sequence[int], group: str | None
) -> list[tuple[float, float, float]]:
    """Return the points of one line: the key's number, the mean, and half of its interval (0 where there is none)."""
    points = [
        (number(key[place]), cell[metric].mean, half(cell[metric]))
        for key, cell in summary.cells.items()
        if key[-1] == variant and metric in cell and all(key[place] == group for place in other)
    ]
    return sorted(points)


def curves(panel: Axes, lines: Mapping[str, Sequence[tuple[float, float, float]]]) -> None:
    """Draw a few lines, each with its band; lines that lie on each other show by their marks."""
    for place, (name, points) in enumerate(lines.items()):
        if points:
            x, mean, width = np.array(points).T
            colour = COLOURS[place % len(COLOURS)]
            mark = MARKERS[place % len(MARKERS)] if len(points) <= 40 else ""
            panel.plot(
                x, mean, color=colour, marker=mark, markersize=6 - place % 4, fillstyle="none", label=drawable(name)
            )
            panel.fill_between(x, mean - width, mean + width, color=colour, alpha=0.2, linewidth=0)


def bundle(panel: Axes, lines: Mapping[str, Sequence[tuple[float, float, float]]]) -> None:
    """Draw many lines as their median and the bands that hold half and nine tenths of them."""
    by_key: dict[float, list[float]] = {}
    for points in lines.values():
        for key, mean, _ in points:
            by_key.setdefault(key, []).append(mean)
    x = sorted(by_key)
    bands = np.array([np.quantile(by_key[value], (0.05, 0.25, 0.5, 0.75, 0.95)) for value in x])
    low, lower, middle, upper, high = bands.T
    panel.fill_between(
        x, low, high, color=COLOURS[0], alpha=0.15, linewidth=0, label=f"nine tenths of {len(lines)} variants"
    )
    panel.fill_between(x, lower, upper, color=COLOURS[0], alpha=0.3, linewidth=0, label="half of them")
    panel.plot(x, middle, color=COLOURS[0], label="median")


def choices(summary: Summary, metrics: Sequence[str]) -> Figure:
    """Draw each metric at each choice of one key of words, a mark per variant."""
    (place,) = varying(summary)
    names = labels(summary, place)
    figure, axes = panels(len(metrics), min(2, len(metrics)), max(1.75, 0.16 * len(names) + 0.6))
    variants = summary.variants[:LINES]
    for panel, metric in zip(axes, metrics, strict=True):
        for order, variant in enumerate(variants):
            cells = {
                key[place]: cell[metric] for key, cell in summary.cells.items() if key[-1] == variant and metric in cell
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
        panel.set_xlabel(spoken(metric))
    legend(figure, axes[0])
    return figure


def spread(summary: Summary, metrics: Sequence[str]) -> Figure:
    """Draw how each metric spreads over the seeds: range, half of all numbers if they are normal, and the mean."""
    figure, axes = panels(len(metrics), min(2, len(metrics)), max(1.2, 0.2 * len(summary.variants) + 0.6))
    for panel, metric in zip(axes, metrics, strict=True):
        for row, variant in enumerate(summary.variants):
            moments = next(
                (cell[metric] for key, cell in summary.cells.items() if key[-1] == variant and metric in cell), None
            )
            if moments is not None:
                deviation = 0.674 * math.sqrt(moments.squares / max(1, moments.count - 1))
                box = [max(moments.least, moments.mean - deviation), min(moments.most, moments.mean + deviation)]
                panel.plot([moments.least, moments.most], [row, row], color="0.6", linewidth=1)
                panel.plot(box, [row, row], color=COLOURS[0], linewidth=5, solid_capstyle="butt")
                panel.plot([moments.mean], [row], "o", color="black", markersize=3)
        panel.set_yticks(range(len(summary.variants)), [drawable(name) for name in summary.variants], parse_math=False)
        panel.set_ylim(len(summary.variants) - 0.5, -0.5)
        panel.set_xlabel(spoken(metric))
    return figure
