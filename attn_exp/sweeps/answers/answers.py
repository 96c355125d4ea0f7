"""All that a sweep answers, made once from its cube, and its tables: terminal, page, files and plots share both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np

from attn_exp.config.schema import Matters
from attn_exp.experiment.row import titled
from attn_exp.report import words
from attn_exp.report.numbers import brief
from attn_exp.report.papers import Table, deep_places
from attn_exp.report.sweep.plotted import FEW, Change
from attn_exp.report.words import listed
from attn_exp.sweeps.answers.cube import Cube
from attn_exp.sweeps.answers.effects import Effect, Share, effects, inert, shares
from attn_exp.sweeps.answers.findings import findings
from attn_exp.sweeps.answers.intervals import Family
from attn_exp.sweeps.answers.phrases import Finding, ranged, short, signed
from attn_exp.sweeps.answers.profiles import family_of, is_number, profiles
from attn_exp.sweeps.answers.sentences import note, sentences


@dataclass(frozen=True)
class Answers:
    """What each setting does, as sentences and as numbers.

    `sentences` begin with what explains most; `note` says how many comparisons they rest on. `found` is what they say,
    as data. `effects` are paired differences: between two values of a setting, and between a variant and the first.
    `inert` names, for each setting, the variants in which it changes nothing. `shares` are of the variance.
    """

    sentences: tuple[str, ...] = ()
    note: str = ""
    found: tuple[Finding, ...] = ()
    family: Family = field(default_factory=Family)
    effects: tuple[Effect, ...] = ()
    shares: tuple[Share, ...] = ()
    inert: Mapping[str, list[str]] = field(default_factory=dict)
    cube: Cube | None = None


NONE = Answers()
"""What a sweep answers that has no result, or too many combinations."""

MATTERS = asdict(Matters())
"""From how much on a difference matters, where `sweep.matters` does not say."""


def answers(cube: Cube | None, thresholds: Mapping[str, float] | None = None) -> Answers:
    """Return what a sweep answers; differences matter from these thresholds on."""
    if cube is None:
        return NONE
    still, explained = inert(cube), tuple(shares(cube))
    compared = list(profiles(cube, still, MATTERS | dict(thresholds or {})))
    held = family_of(compared)
    found = tuple(findings(compared, held))
    lines = tuple(sentences(cube, found, explained, still))
    return Answers(lines, note(cube, held, found), found, held, tuple(effects(cube)), explained, still, cube)


def moving(answers: Answers) -> list[Effect]:
    """Return the effects that are there: not those of settings that change nothing, or of metrics that do not move."""
    return [
        effect
        for effect in answers.effects
        if not effect.nothing and effect.variant not in answers.inert.get(effect.setting, ())
    ]


MOST_DRAWN = 24
"""Lines that a panel of a plot has room for: those of the largest effects."""


def drawn_changes(answers: Answers, metrics: Sequence[str]) -> dict[str, list[Change]]:
    """Return the effects on each metric as they are drawn, the largest first; variants that share one are together.

    Of a setting of numbers that is the whole way, from its first value to its last. Metrics that nothing moves are
    left out. Variants are named where there are several.
    """
    several = len({effect.variant for effect in answers.effects}) > 1
    drawn = {
        metric: [
            drawn_change(first, labelled(group, several), answers.family)
            for group in groups_drawn(answers, metric)
            for first in group[:1]
        ]
        for metric in metrics
    }
    return {metric: lines for metric, lines in drawn.items() if lines}


def drawn_change(effect: Effect, label: str, family: Family) -> Change:
    """Return an effect as it is drawn."""
    return Change(label, effect.mean, effect.low, effect.high, effect.differences, effect.sure(family.level))


def groups_drawn(answers: Answers, metric: str) -> list[list[Effect]]:
    """Return the effects on a metric in groups that read the same, the largest first."""
    moved = [effect for effect in moving(answers) if effect.metric == metric]
    ways = {(effect.setting, effect.variant): effect for effect in moved}
    drawn = [effect for effect in moved if not is_number(effect.end) or ways[effect.setting, effect.variant] == effect]
    changes: dict[tuple[str, str], list[Effect]] = {}
    for effect in drawn:
        changes.setdefault((effect.setting, effect.end if effect.setting != "variant" else ""), []).append(effect)
    groups = [group for effects in changes.values() for group in alike(effects)]
    return sorted(groups, key=lambda group: -abs(group[0].mean))[:MOST_DRAWN]


def alike(effects: Sequence[Effect]) -> list[list[Effect]]:
    """Return the effects in groups that read the same."""
    groups: dict[tuple[str, str, float], list[Effect]] = {}
    for effect in effects:
        groups.setdefault((signed(effect.mean), signed(effect.low), effect.share), []).append(effect)
    return list(groups.values())


def change(effect: Effect) -> str:
    """Name the change of a setting."""
    if {effect.start, effect.end} == {"true", "false"}:
        return f"{effect.setting}={effect.end}"
    return f"{effect.setting} from {short(effect.start)} to {short(effect.end)}"


def labelled(group: Sequence[Effect], several: bool) -> str:
    """Say what changes, and in which variants where there are several."""
    effect, names = group[0], listed([effect.variant for effect in group])
    if effect.setting == "variant":
        return f"{names}, not {effect.start}"
    return f"{change(effect)}: {names}" if several else change(effect)


def effects_table(answers: Answers) -> Table:
    """Return the paired effects as a table for papers: a line per setting, metric and variant, if there are several."""
    head: tuple[str, ...] = (
        words.SETTING, "from", "to", words.VARIANT_HEAD, words.METRIC, "effect", "95% interval",
        words.SEEDS, "same sign", "pairs", "sure",
    )  # fmt: skip
    shown = moving(answers)
    lines = [effect_line(effect, answers.family) for effect in shown]
    if len({effect.variant for effect in answers.effects}) == 1:  # then its column says nothing
        head, lines = head[:3] + head[4:], [line[:3] + line[4:] for line in lines]
    caption = (
        "What each setting does. Two rows that share all other settings are subtracted, and the effect is the mean of "
        "the differences over seeds. Beside it stand its 95% interval, the share of seeds whose difference has its "
        "sign, and whether it is sure among all comparisons of the sweep."
    )
    return Table("effects", caption, head, tuple(lines), deep_places(effect.metric for effect in shown))


EFFECT = ("setting", "start", "end", "variant", "metric", "mean", "low", "high", "chance", "share", "seeds", "pairs")
SHARE = ("metric", "explained_by", "share")


def effect_records(answers: Answers) -> list[tuple[Any, ...]]:
    """Return every effect, in the columns `EFFECT`, in full digits."""
    return [tuple(getattr(effect, column) for column in EFFECT) for effect in answers.effects]


def share_records(answers: Answers) -> list[tuple[Any, ...]]:
    """Return every share of the variance, in the columns `SHARE`, in full digits."""
    return [(share.metric, " x ".join(share.settings), share.share) for share in answers.shares]


def effect_line(effect: Effect, family: Family) -> tuple[str, ...]:
    """Return one effect as the cells of a line; what is sure is so among all comparisons of the sweep."""
    shown = ", ".join(map(signed, effect.differences)) if effect.seeds > 1 else ""
    if is_number(str(effect.low)):
        shown = ranged(effect.low, effect.high)
    return (
        effect.setting, effect.start, effect.end, effect.variant, titled(effect.metric), signed(effect.mean), shown,
        f"{effect.seeds}", f"{effect.share:.0%}", f"{effect.pairs}", brief(effect.sure(family.level)),
    )  # fmt: skip


def shares_table(answers: Answers) -> Table:
    """Return what explains how much of the variance, as a table for papers: each share of a hundredth or more."""
    large = [share for share in answers.shares if share.share >= 0.01]
    lines = tuple((titled(share.metric), " × ".join(share.settings), f"{share.share:.1%}") for share in large)
    head = (words.METRIC, "explained by", words.SHARE)
    caption = "The share of each metric's variance that each setting explains, and each pair beyond both alone."
    return Table("shares", caption, head, lines, deep_places(share.metric for share in large))


SHARES = (5, 25, 50, 75, 95)
"""Percentiles that a table shows; between two numbers they are interpolated (Hyndman & Fan 1996, type 7)."""


def percentiles_table(cube: Cube | None) -> Table:
    """Return a line for each combination, variant and metric that differs over the seeds, of which there are enough."""
    pairs = () if cube is None or len(cube.seeds) < FEW else tuple(lines_of(cube))
    names = () if cube is None else cube.names
    head = (*names, words.VARIANT_HEAD, words.METRIC, words.SEEDS, *(f"{share}%" for share in SHARES))
    lines, deep = tuple(line for _, line in pairs), deep_places(metric for metric, _ in pairs)
    caption = "Percentiles over the seeds, of every combination and metric that differs over them."
    return Table("percentiles", caption, head, lines, deep)


def lines_of(cube: Cube) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the lines, each after its metric, in the order of the points."""
    for places in product(*(range(len(levels)) for levels in cube.levels)):
        labels = tuple(levels[place] for levels, place in zip(cube.levels, places, strict=True))
        for variant, label in enumerate(cube.variants):
            for metric, numbers in cube.numbers.items():
                seeds = numbers[..., variant][places]
                seeds = seeds[np.isfinite(seeds)]
                if len(seeds) >= FEW and np.ptp(seeds) > 0:
                    shown = map(brief, map(float, np.percentile(seeds, SHARES)))
                    yield metric, (*labels, label, titled(metric), f"{len(seeds)}", *shown)
