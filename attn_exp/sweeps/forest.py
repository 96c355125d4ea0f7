"""The effect of each setting as a picture: a mark for the mean of the paired differences, a line for its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attn_exp.experiment.row import titled
from attn_exp.report import words
from attn_exp.report.charts.matplotlib_figure import drawable
from attn_exp.report.sentences import listed
from attn_exp.sweeps.answers.answers import Answers, moving
from attn_exp.sweeps.answers.effects import Effect
from attn_exp.sweeps.answers.sentences import alike, change, is_number
from attn_exp.sweeps.panels import legend, panels

MOST = 24
"""Lines that a panel has room for: those of the largest effects."""
SURE, UNSURE = "#0072B2", "0.55"


def effects(answers: Answers, metrics: Sequence[str]) -> Figure | None:
    """Draw the effects on each metric, the largest above; None where no setting moves any of them."""
    drawn = {metric: chosen(answers, metric) for metric in metrics}
    drawn = {metric: lines for metric, lines in drawn.items() if lines}
    if not drawn:
        return None
    tallest = max(map(len, drawn.values()))
    several = len({effect.variant for effect in answers.effects}) > 1
    figure, axes = panels(len(drawn), 1, 0.5 + 0.2 * tallest)
    for panel, (metric, lines) in zip(axes, drawn.items(), strict=True):
        draw(panel, lines, several)
        panel.set_xlabel(words.CHANGE_OF.format(metric=titled(metric)))
    legend(figure, axes[0])
    return figure


def chosen(answers: Answers, metric: str) -> list[list[Effect]]:
    """Return the effects on a metric that are drawn, the largest first; variants that share one are together.

    Of a setting of numbers that is the whole way, from its first value to its last.
    """
    moved = [effect for effect in moving(answers) if effect.metric == metric]
    ways = {(effect.setting, effect.variant): effect for effect in moved}
    drawn = [effect for effect in moved if not is_number(effect.end) or ways[effect.setting, effect.variant] == effect]
    changes: dict[tuple[str, str], list[Effect]] = {}
    for effect in drawn:
        changes.setdefault((effect.setting, effect.end if effect.setting != "variant" else ""), []).append(effect)
    groups = [group for effects in changes.values() for group in alike(effects)]
    return sorted(groups, key=lambda group: -abs(group[0].mean))[:MOST]


def draw(panel: Axes, groups: Sequence[Sequence[Effect]], several: bool) -> None:
    """Draw effects under each other: the mean and its interval, or the differences themselves where seeds are few.

    Variants are named where there are `several`.
    """
    lines = [group[0] for group in groups]
    panel.axvline(0, color="0.3", linewidth=0.6)
    for sure, colour in ((True, SURE), (False, UNSURE)):
        rows = [row for row, effect in enumerate(lines) if effect.sure == sure]
        means = np.array([lines[row].mean for row in rows])
        ends = np.array([(ends_of(lines[row])) for row in rows]).reshape(-1, 2).T
        interval = words.LEAVES_OUT_ZERO if any(not effect.differences for effect in lines) else words.ALL_SEEDS_AGREE
        name = interval if sure else words.UNSURE
        if rows:
            panel.errorbar(means, rows, xerr=abs(ends - means), fmt="o", color=colour, markersize=4, label=name)
    for row, effect in enumerate(lines):
        panel.plot(effect.differences, [row] * len(effect.differences), "|", color="0.3", markersize=7)
    panel.set_yticks(range(len(lines)), [label(group, several) for group in groups], parse_math=False)
    panel.set_ylim(len(lines) - 0.5, -0.5)


def ends_of(effect: Effect) -> tuple[float, float]:
    """Return the ends of an effect's line: its interval, or nothing but the mean."""
    return (effect.mean, effect.mean) if math.isnan(effect.low) else (effect.low, effect.high)


def label(group: Sequence[Effect], several: bool) -> str:
    """Return what changes, and in which variants where there are several."""
    effect, names = group[0], listed([effect.variant for effect in group])
    if effect.setting == "variant":
        return drawable(words.VARIANT_NOT.format(variants=names, first=effect.start))
    return drawable(f"{change(effect)}: {names}" if several else change(effect))
