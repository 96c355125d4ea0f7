"""The results of a sweep's analysis, computed once from its cube and shared by terminal, page, files and plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any

import numpy as np

from attn_exp.experiment.row import spoken, titled
from attn_exp.report import words
from attn_exp.report.papers import Table, deep_places
from attn_exp.report.sweep.plotted import Change
from attn_exp.report.words import listed
from attn_exp.sweeps.answers.cube import Cube
from attn_exp.sweeps.answers.effect import RATIOS, Effect, format_effects, format_size, short, shorten
from attn_exp.sweeps.answers.effects import (
    SPOKEN,
    Share,
    measure_effects,
    measure_shares,
)

WRONG = 1e6
"""Units in the last place beyond which rounding cannot explain an error."""


@dataclass(frozen=True)
class Answers:
    """The effect of each setting: `effects` are rows of one table, sorted by explained variance.

    `notes` qualify the verdicts and say what could not be compared, `shares` are shares of the variance, and `warnings`
    say that outputs are wrong.
    """

    effects: Sequence[Effect] = ()
    notes: Sequence[str] = ()
    shares: Sequence[Share] = ()
    warnings: Sequence[str] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """The warnings, and a sentence for the rows of each change of a metric."""
        return (*self.warnings, *(format_effects(list(rows)) for _, rows in groupby(self.effects, lambda row: row.key)))


def answer(cube: Cube | None, thresholds: Mapping[str, float], exact: bool = False) -> Answers:
    """Analyse a sweep; `thresholds` are the smallest differences that matter."""
    if cube is None:
        return Answers()
    shares = list(measure_shares(cube))
    effects, tests = measure_effects(cube, thresholds, shares, exact)
    return Answers(effects, list(find_notes(cube, tests)), shares, list(find_wrong(cube)))


def find_wrong(cube: Cube) -> Iterator[str]:
    """Yield a warning if outputs are wrong."""
    far = cube.numbers.get("error_ulp", np.zeros(1))
    if wrong := int((far > WRONG).sum()):
        largest = float(np.nanmax(cube.numbers["error"]))
        yield f"The output is wrong in {wrong:,} of {(cube.resolved >= 0).sum():,} rows, by up to {largest:.2g}."


def find_notes(cube: Cube, tests: int) -> Iterator[str]:
    """Yield notes that apply to all effects."""
    apart = []
    for metric in (name for name in SPOKEN if name in cube.numbers):
        groups = cube.find_groups(metric)[cube.resolved >= 0]
        lost = int((np.isnan(cube.numbers[metric]) & (cube.resolved >= 0)).sum())
        if lost:
            yield f"The {spoken(metric)} is missing in {lost:,} of {(cube.resolved >= 0).sum():,} rows."
        apart += [f"the {spoken(metric)}"] if (groups != groups[:1]).any() else []
    if apart:
        yield f"Only rows of the same queries, whose weights sum alike, are compared in {listed(apart)}."
    if len(cube.seeds) > 1 and tests:
        holm = f"Of 100 such sweeps, at most 5 have a false verdict (Holm, {tests:,} tests)"
        yield f"{holm}; ± is half of a 95% interval over {len(cube.seeds):,} seeds."
    if cube.left_out:
        yield f"The first {len(cube.seeds):,} of {len(cube.seeds) + cube.left_out:,} seeds are compared."


MOST_DRAWN = 24
"""Maximum number of lines in a plot panel; the effects that explain most are kept."""


def drawn_changes(answers: Answers, metrics: Sequence[str]) -> dict[str, list[Change]]:
    """Return the effects to draw for each metric; metrics without any change are left out."""
    drawn = {
        metric: [
            Change(label_effect(each), each.mean, each.low, each.high, bool(each.sign))
            for each in answers.effects
            if each.metric == metric
        ][:MOST_DRAWN]
        for metric in metrics
        if metric not in RATIOS
    }
    return {metric: changes for metric, changes in drawn.items() if any(change.mean for change in changes)}


def label_effect(effect: Effect) -> str:
    """Label the change of a setting, and where it applies."""
    place = f" at {shorten(effect.at)}" if effect.at else ""
    return f"{shorten(effect.setting)}: {format_change(effect)}{place}"


def format_change(effect: Effect) -> str:
    return f"{short(effect.start)} → {short(effect.end)}"


JUDGED = ("explains", "verdict", "note")
EFFECT = tuple(each.name for each in fields(Effect) if each.name != "sign")
SHARE = ("metric", "explained_by", "share")


def list_records(answers: Answers) -> dict[str, tuple[Sequence[str], list[tuple[Any, ...]]]]:
    """Return the columns and the rows, in full digits, of the effects and of the shares of the variance."""
    effects = [tuple(getattr(effect, column) for column in EFFECT) for effect in answers.effects]
    shares = [(share.metric, " x ".join(share.settings), share.share) for share in answers.shares]
    return {"effects": (EFFECT, effects), "shares": (SHARE, shares)}


def effects_table(answers: Answers) -> Table:
    """Return the effects as a table for papers."""
    head: tuple[str, ...] = (words.SETTING, "change", words.METRIC, "at", "effect", words.SEEDS, *JUDGED)
    lines: list[tuple[str, ...]] = [
        (
            shorten(each.setting), format_change(each), titled(each.metric), shorten(each.at),
            f"{'× ' if each.metric in RATIOS else ''}{format_size(each)}", f"{each.seeds}", f"{each.explains:.0%}",
            each.verdict, each.note,
        )
        for each in answers.effects
    ]  # fmt: skip
    empty = [place for place in range(len(head)) if not any(line[place] for line in lines)]
    head, *lines = (tuple(cell for place, cell in enumerate(line) if place not in empty) for line in (head, *lines))
    caption = (
        "What each setting does: the mean difference of rows that share seed and all other settings, with half of its "
        "95% interval over the seeds; how much of the metric's variance the setting explains; and whether there is an "
        "effect, as far as these seeds tell."
    )
    return Table("effects", caption, head, tuple(lines), deep_places(effect.metric for effect in answers.effects))


def shares_table(answers: Answers) -> Table:
    """Return the explained shares of variance as a table for papers, leaving out those below a hundredth."""
    large = [share for share in answers.shares if share.share >= 0.01]
    lines = tuple((titled(share.metric), " × ".join(share.settings), f"{share.share:.1%}") for share in large)
    head = (words.METRIC, "explained by", words.SHARE)
    caption = "The share of each metric's variance that each setting explains, and each pair beyond both alone."
    return Table("shares", caption, head, lines, deep_places(share.metric for share in large))
