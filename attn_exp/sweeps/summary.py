"""The findings of a sweep: the mean of every combination, and the effects as sentences, tables and plots.

`summarize` turns the lines of the table into a `Summary`, whose `answers` hold the effects. The second half of the
module writes effects as text, such as "head=2 instead of 1 raises the entropy by 0.4 ± 0.1." Numbers have as many
digits as their intervals justify.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import count_of
from attn_exp.experiment.row import COLUMNS, column_title, readable_name
from attn_exp.report import sweep_plots
from attn_exp.report.escapes import brief
from attn_exp.report.papers import Table, deep_lines
from attn_exp.report.sentences import listed
from attn_exp.report.sweep_plots import Change, Numbers, is_number
from attn_exp.sweeps.effects import (
    FEW,
    NO,
    NOISE,
    RATIOS,
    SCOPE,
    SPOKEN,
    Effect,
    Shares,
    find_wrong_rows,
    measure_effects,
    measure_shares,
    shorten,
    t_quantile,
)
from attn_exp.sweeps.rows import METRICS, Axes, Column, Cube, Rows, combine, make_cube, read_rows

LAYER = "model.layer"
# a metric of one head: the share of a pattern, such as `head_3_previous`
HEAD_COLUMN = re.compile(r"head_(\d+)_([a-z]+)")
MOST_CELLS = 20_000  # maximum number of cells in a summary

Key = tuple[str, ...]  # the values of the shown settings and the variant of a cell

MOST_NAMED = 6
"""Maximum number of values that a sentence lists."""
CLEAR_VERBS = ("raises", "lowers")  # verbs for a significant effect; any other effect gets a more careful verb
MOST_DRAWN = 24
"""Maximum number of effects in a plot panel, which shows those that explain the most variance."""


def head_and_pattern(name: str) -> tuple[int, str] | None:
    """Split the name of a head's metric: `head_3_previous -> (3, "previous")`; None for any other metric."""
    match = HEAD_COLUMN.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


@dataclass(frozen=True)
class Summary:
    """The data for a sweep's report. A cell is a variant with one value of each setting except the seed.

    - `cells`: the statistics of each metric in a cell. `first`: the number of its first point.
    - `least`, `most`: the extremes of each metric over all cells.
    - `failures`: the points with each error message.
    - `tally`: how many published results agree, such as "6 of 6".
    - `disagreements`: the tally of each point at which a published result does not agree.
    """

    axes: tuple[str, ...]
    seeds: int
    points: int
    failed: int
    variants: tuple[str, ...]
    cells: Mapping[Key, Mapping[str, Numbers]]
    first: Mapping[Key, int]
    least: Mapping[str, float]
    most: Mapping[str, float]
    failures: Mapping[str, Sequence[int]]
    tally: str
    disagreements: Mapping[int, str]
    answers: Answers

    @property
    def more(self) -> list[str]:
        return [name for name in self.most if name not in METRICS and not head_and_pattern(name)]


def summarize(
    head: Sequence[str],
    lines: Iterable[Sequence[str]],
    axes: Axes,
    metrics: Sequence[str] = (),
    dimensions: Sequence[Sequence[int]] | None = None,
    matters: Mapping[str, float] | None = None,
    exact: bool = False,
) -> Summary:
    """Summarise the lines of a sweep's table; `metrics` names the metrics that are not built in.

    `dimensions` groups the indices of zipped axes; if it is None, no axes are zipped. `matters` holds the smallest
    difference that matters, by metric. `exact` is set if no number depends on the seed.
    """
    rows = read_rows(head, lines, axes, metrics)
    groups = dimensions if dimensions is not None else [[index] for index in range(len(axes))]
    cube = make_cube(rows, axes, groups, [name for name in metrics if not head_and_pattern(name)])
    shown_columns = choose_axes(rows, axes)
    variants = rows.texts["variant"]
    cells = combine([*shown_columns.values(), variants])
    moments_of = {name: measure_cells(cells, numbers) for name, numbers in rows.numbers.items()}
    firsts = rows.points[np.unique(cells.codes, return_index=True)[1]].tolist()
    finite = {name: numbers[np.isfinite(numbers)] for name, numbers in rows.numbers.items()}
    failures = defaultdict[str, list[int]](list)
    for point, message in rows.failed:
        failures[message].append(point)
    tallies = count_agreement(rows)
    starts_point = np.diff(rows.points, prepend=-1) != 0
    disagreeing = np.flatnonzero(starts_point & (tallies[:, 0] < tallies[:, 1]))
    return Summary(
        axes=tuple(shown_columns),
        seeds=math.prod(int(axis["count"]) for axis in axes if axis["key"] == "seed"),
        points=int(starts_point.sum()) + len(rows.failed),
        failed=len(rows.failed),
        variants=variants.labels,
        cells={
            key: {name: moments[index] for name, moments in moments_of.items() if moments[index].count}
            for index, key in enumerate(cells.labels)
        },
        first=dict(zip(cells.labels, firsts, strict=True)),
        least={name: float(numbers.min()) for name, numbers in finite.items() if len(numbers)},
        most={name: float(numbers.max()) for name, numbers in finite.items() if len(numbers)},
        failures=failures,
        tally=format_tally(tallies[starts_point].sum(axis=0)),
        disagreements={int(rows.points[index]): format_tally(tallies[index]) for index in disagreeing},
        answers=analyse_effects(cube, matters or {}, exact),
    )


def choose_axes(rows: Rows, axes: Axes) -> dict[str, Column]:
    """Return the column of each axis except the seed; the longest axes are dropped if there are too many cells."""
    shown = sorted((axis for axis in axes if axis["key"] != "seed"), key=lambda axis: int(axis["count"]))
    while math.prod(int(axis["count"]) for axis in shown) > MOST_CELLS:
        shown.pop()
    return {axis["column"]: rows.texts[axis["column"]] for axis in axes if axis in shown}


def half_width(count: int, squares: float) -> float:
    """Return the half-width of the 95 % confidence interval of a mean, `t s / sqrt(n)`; NaN for a single number."""
    return t_quantile(count - 1) * math.sqrt(squares / (count - 1) / count) if count > 1 else math.nan


def measure_cells(cells: Column, numbers: Array) -> list[Numbers]:
    count, is_finite = len(cells.labels), np.isfinite(numbers)
    codes, numbers = cells.codes[is_finite], numbers[is_finite]
    counts = np.bincount(codes, minlength=count)
    means = np.bincount(codes, numbers, count) / np.maximum(counts, 1)
    squares = np.bincount(codes, (numbers - means[codes]) ** 2, count)
    least, most = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(least, codes, numbers)
    np.maximum.at(most, codes, numbers)
    half_widths = np.array(list(map(half_width, counts.tolist(), squares.tolist())))
    columns = (column.tolist() for column in (counts, means, squares, least, most, half_widths))
    return [Numbers(*each) for each in zip(*columns, strict=True)]


def count_agreement(rows: Rows) -> Array:
    """Return the tally of each row's point: how many published results agree, and how many there are, `[rows, 2]`."""
    column = rows.texts.get("agree", Column(("",), np.zeros_like(rows.points)))
    tallies = [[int(number) for number in text.split(" of ")] if text else [0, 0] for text in column.labels]
    return np.array(tallies, dtype=np.int64).reshape(-1, 2)[column.codes]


def format_tally(tally: Array) -> str:
    return f"{int(tally[0]):,} of {int(tally[1]):,}" if tally[1] else ""


def format_mean(moments: Numbers | None) -> str:
    """Format a mean with the digits that its uncertainty justifies, and the half-width of its 95 % interval.

    If there are few numbers, their range replaces the interval; if they differ only by rounding, there is neither.
    """
    if moments is None:
        return ""
    if moments.most - moments.least <= NOISE * abs(moments.mean):
        return brief(moments.mean).rstrip("0").rstrip(".") if 1e-3 <= abs(moments.mean) < 1e5 else brief(moments.mean)
    if moments.count < sweep_plots.FEW:
        mean, least, most = (round_number(number, 3) for number in (moments.mean, moments.least, moments.most))
        return f"{mean} ({least}..{most})"
    return format_with_interval(moments.mean, moments.mean - moments.half_width, moments.mean + moments.half_width)


# Effects in words


@dataclass(frozen=True)
class Answers:
    """The effect of each setting on each metric, as data; `sentences` are the same in words.

    - `effects`: the rows of one table, sorted by explained variance.
    - `tests`: the number of comparisons behind the verdicts.
    - `notes`: sentences that qualify the verdicts, or say what could not be compared.
    - `shares`: the shares of each metric's variance.
    - `warnings`: sentences about wrong outputs.
    """

    effects: Sequence[Effect] = ()
    tests: int = 0
    notes: Sequence[str] = ()
    shares: Shares = field(default_factory=dict)
    warnings: Sequence[str] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        by_change = groupby(self.effects, lambda row: (row.setting, row.start, row.end, row.metric))
        changes = sorted(
            (list(rows) for _, rows in by_change),
            key=lambda rows: (-np.nan_to_num(rows[0].explains), -max(abs(row.mean) for row in rows)),
        )
        return (*self.warnings, *(format_effects(rows, self.tests) for rows in changes))


def analyse_effects(cube: Cube | None, thresholds: Mapping[str, float], exact: bool = False) -> Answers:
    """Analyse the effects in a sweep; `thresholds` holds the smallest difference that matters, by metric."""
    if cube is None:
        return Answers()
    shares = measure_shares(cube)
    effects, tests = measure_effects(cube, thresholds, shares, exact)
    warnings, wrong = list[str](), find_wrong_rows(cube)
    if wrong.any():
        warnings.append(
            f"The output is wrong in {count_rows(cube, wrong)}, "
            f"by up to {round_number(float(np.nanmax(cube.numbers['error'])))}."
        )
    return Answers(effects, tests, list(find_notes(cube, tests)), shares, warnings)


def count_rows(cube: Cube, is_marked: Array) -> str:
    """Say how many rows are marked, such as `4 of 12 rows (head=2)`.

    If the marked rows are exactly the rows with certain values of one setting, these values are named.
    """
    has_result = cube.resolved >= 0
    text = f"{int(is_marked.sum()):,} of {int(has_result.sum()):,} rows"
    for axis, (name, labels) in enumerate(zip(cube.names, cube.levels, strict=True)):
        others = tuple(other for other in range(is_marked.ndim) if other != axis)
        affected = np.flatnonzero(is_marked.any(axis=others))
        is_covered = np.asarray((is_marked | ~has_result).all(axis=others))
        if len(affected) < min(len(labels), MOST_NAMED + 1) and is_covered[affected].all():
            return f"{text} ({shorten(name)}={listed([labels[index] for index in affected])})"
    return text


def find_notes(cube: Cube, tests: int) -> Iterator[str]:
    partly_comparable, has_result = [], cube.resolved >= 0
    for metric in (name for name in SPOKEN if name in cube.numbers):
        groups, is_missing = cube.find_groups(metric)[has_result], np.isnan(cube.numbers[metric]) & has_result
        if is_missing.any():
            yield f"The {readable_name(metric)} is missing in {count_rows(cube, is_missing)}."
        partly_comparable += [f"the {readable_name(metric)}"] if (groups != groups[:1]).any() else []
    if partly_comparable:
        yield (
            f"For {listed(partly_comparable)}, only rows with the same queries and the same sum of weights are "
            "compared."
        )
    if len(cube.seeds) > 1 and tests:
        holm = f"Of 100 such sweeps, at most 5 report a false effect (Holm, {count_of(tests, 'test')})"
        yield f"{holm}; ± is half of a 95% interval over {len(cube.seeds):,} seeds."
    if cube.left_out:
        yield f"The first {len(cube.seeds):,} of {len(cube.seeds) + cube.left_out:,} seeds are compared."


def format_effects(rows: Sequence[Effect], tests: int) -> str:
    """Say how a change affects a metric; if that depends on another setting, give the largest and smallest effect."""
    ends = {max(rows, key=lambda row: row.mean), min(rows, key=lambda row: row.mean)}
    largest, *others = sorted(ends, key=lambda row: -abs(row.mean))
    # write "head=2 instead of 1", not "head=2 instead of head=1"
    start = format_value(largest.setting, largest.start).removeprefix(f"{shorten(largest.setting)}=")
    verb, details = describe_effect(largest, tests)
    text = (
        f"{format_value(largest.setting, largest.end)} instead of {start} {verb} the "
        f"{readable_name(largest.metric)}{details}"
    )
    for other in others:  # a repeated "raises it" or "lowers it" is left out
        other_verb, other_details = describe_effect(other, tests)
        text += f" and{other_details}" if other_verb == verb in CLEAR_VERBS else f" and {other_verb} it{other_details}"
    few = (
        f"{count_of(largest.seeds, 'seed is', 'seeds are')} too few to tell"
        if largest.verdict == FEW and largest.mean != 0
        else ""
    )
    # of the notes on an effect that hardly exists, keep only where it was measured
    notes = (note for note in largest.note.split("; ") if largest.verdict != NO or note.startswith(SCOPE))
    return "; ".join(filter(None, (text, few, *notes))) + "."


def describe_effect(effect: Effect, tests: int) -> tuple[str, str]:
    """Return the verb for an effect, and how the sentence goes on: `raises` and ` by 2 at b=1`.

    If the interval excludes 0, but Holm's test of all comparisons finds no effect, the text says so.
    """
    at = f" at {format_value(*effect.at.split('=', 1))}" if effect.at else ""
    if effect.mean == 0:
        return "does not change", f"{at}{' with this seed' if effect.verdict == FEW and effect.seeds == 1 else ''}"
    unit = COLUMNS[effect.metric].small if effect.metric in COLUMNS and effect.metric not in RATIOS else ""
    size = f"{format_size(effect)} {unit}".rstrip()
    # both ends of the interval have the same sign
    one_of = (
        f", not significant among {tests:,} comparisons" if effect.low * effect.high > 0 and not effect.sign else ""
    )
    if effect.verdict == NO or (at and not effect.sign and not math.isnan(effect.low)):
        return "hardly changes" if effect.verdict == NO else "does not clearly change", f"{at} ({size}{one_of})"
    verbs = CLEAR_VERBS if effect.sign else ("may raise", "may lower")
    factor = "a factor of " if effect.metric in RATIOS else ""
    return verbs[effect.mean < 0], f" by {factor}{size.lstrip('+−')}{at}{one_of}"


def is_divided(effect: Effect) -> bool:
    """Return whether an effect lowers an error, so that its size is written as a divisor."""
    return effect.metric in RATIOS and effect.mean < 0 and effect.verdict != NO


def format_size(effect: Effect) -> str:
    """Format an effect with its sign and the half-width of its interval; for an error, as a factor."""
    if effect.metric in RATIOS:
        sign = -1 if is_divided(effect) else 1
        mean, *ends = (10 ** (sign * number) for number in (effect.mean, effect.low, effect.high))
        least, most = map(round_number, (min(ends), max(ends)))
        return round_number(mean) if math.isnan(ends[0]) else f"{round_number(mean)} ({least} to {most})"
    text = format_with_interval(effect.mean, effect.low, effect.high)
    is_zero = not set(text.split(" ")[0]) & set("123456789")  # a mean that is rounded to 0 has no sign
    return ("" if is_zero else "−" if effect.mean < 0 else "+") + text.removeprefix("-")


def round_number(number: float, digits: int = 2) -> str:
    """Round to `digits` significant digits; thousands are written out: `3,700`."""
    text = f"{number:.{digits}g}"
    return f"{float(text):,.0f}" if "e+" in text and abs(number) < 1e6 else text


def format_with_interval(mean: float, low: float, high: float) -> str:
    """Format a number with the digits that its interval justifies: `2.2 ± 0.4`."""
    half = max(mean - low, high - mean)
    if not half > NOISE * abs(mean):
        return round_number(mean, 3)
    # one digit of the half-width, two if it begins with 1: 0.4, 0.13
    decimals = -math.floor(math.log10(float(f"{half:.1e}"))) + f"{half:.1e}".startswith("1")
    if abs(decimals) > 6:
        return f"{round_number(mean)} ± {round_number(half, 1)}"
    shown, margin = (f"{round(number, decimals) + 0.0:.{max(0, decimals)}f}" for number in (mean, half))
    return f"{shown} ± {margin}"


def shorten_number(label: str) -> str:
    return f"{float(label):g}" if len(label) > 8 and is_number(label) else label


def format_value(setting: str, label: str) -> str:
    """Format a value of a setting, or values of zipped settings: `head=2 and d_model=16`."""
    names, values = shorten(setting).split(", "), label.split(", ", setting.count(", "))
    return listed([f"{name}={shorten_number(value)}" for name, value in zip(names, values, strict=True)])


def format_change(effect: Effect) -> str:
    return f"{shorten_number(effect.start)} → {shorten_number(effect.end)}"


def list_changes(answers: Answers, metrics: Sequence[str]) -> dict[str, list[Change]]:
    changes_of: dict[str, list[Change]] = {metric: [] for metric in metrics if metric not in RATIOS}
    for effect in (effect for effect in answers.effects if effect.metric in changes_of):
        label = f"{shorten(effect.setting)}: {format_change(effect)}{f' at {shorten(effect.at)}' if effect.at else ''}"
        changes_of[effect.metric].append(Change(label, effect.mean, effect.low, effect.high, bool(effect.sign)))
    return {
        metric: changes[:MOST_DRAWN] for metric, changes in changes_of.items() if any(effect.mean for effect in changes)
    }


def list_records(answers: Answers) -> dict[str, tuple[Sequence[str], list[tuple[Any, ...]]]]:
    head = tuple(attribute.name for attribute in fields(Effect) if attribute.name != "sign")
    effects = [tuple(getattr(effect, column) for column in head) for effect in answers.effects]
    shares = [(metric, " x ".join(settings), share) for (metric, *settings), share in answers.shares.items()]
    return {"effects": (head, effects), "shares": (("metric", "explained_by", "share"), shares)}


def effects_table(answers: Answers) -> Table:
    head = ("setting", "change", "metric", "at", "effect", "seeds", "explains", "verdict", "note")
    lines = [
        (
            shorten(each.setting), format_change(each), column_title(each.metric), shorten(each.at),
            f"{('÷ ' if is_divided(each) else '× ') * (each.metric in RATIOS)}{format_size(each)}", f"{each.seeds}",
            "" if math.isnan(each.explains) else f"{each.explains:.0%}", each.verdict, each.note,
        )
        for each in answers.effects
    ]  # fmt: skip
    filled = [column for column in range(len(head)) if any(line[column] for line in lines)]
    caption = (
        "The effect of each setting: the mean difference between rows that share the seed and all other settings, ± "
        "half of its 95% interval over the seeds (for an error, a factor or divisor instead); the share of the "
        "metric's variance that the setting explains, alone and together with the settings that its effect depends "
        "on; and whether these seeds show an effect."
    )
    head_shown, *shown = (tuple(line[column] for column in filled) for line in (head, *lines))
    return Table("effects", caption, head_shown, tuple(shown), deep_lines(effect.metric for effect in answers.effects))


def shares_table(answers: Answers) -> Table:
    large = {key: share for key, share in answers.shares.items() if share >= 0.01}
    lines = tuple(
        (column_title(metric), " × ".join(settings), f"{share:.1%}") for (metric, *settings), share in large.items()
    )
    caption = "The share of each metric's variance that a setting explains, or that a pair adds to its two settings."
    head = ("metric", "explained by", "share")
    return Table("shares", caption, head, lines, deep_lines(metric for metric, *_ in large))
