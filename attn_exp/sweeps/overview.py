"""The data of a sweep's report, which the terminal and the pages share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import TextWrapper
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.spelling import Repeat
from attn_exp.experiment.row import COLUMNS, is_deep, titled
from attn_exp.patience import spoken_time
from attn_exp.report import words
from attn_exp.report.escapes import plain
from attn_exp.report.figures.figure import size
from attn_exp.report.numbers import brief
from attn_exp.report.papers import Table
from attn_exp.report.sentences import origin
from attn_exp.report.sweep.explorer import explored
from attn_exp.report.sweep.plotted import ALL, Plotted, in_order
from attn_exp.report.terminal import table as drawn
from attn_exp.runs import recorded_code
from attn_exp.sweeps.answers.answers import drawn_changes, effects_table, percentiles_table, shares_table
from attn_exp.sweeps.answers.cube import endless_text
from attn_exp.sweeps.answers.effects import FLOOR
from attn_exp.sweeps.answers.totals import (
    ANY,
    LAYER,
    Summary,
    head_and_pattern,
    head_column,
    merge_rows,
    numbers_shown,
    summarized,
)
from attn_exp.sweeps.manifest import figures, point_command, point_words, thresholds

IN_TERMINAL, IN_REPORT, WIDTH = 24, 200, 120
LONGEST = 3000
"""Maximum length of a sentence in the terminal."""
MOST_SAID = 5
"""Number of effects described in words; the table has all of them."""
ALIKE = 1e-9
"""Outputs that differ by less than this are the same to rounding."""
TO_THE_FIRST = ("shift", "cosine")
"""Metrics that compare a variant with the first one."""

TABLE = [name for name, column in COLUMNS.items() if "sweep" in column.shown]
DRAWN = sorted((name for name in COLUMNS if COLUMNS[name].drawn), key=lambda name: COLUMNS[name].drawn)


@dataclass(frozen=True)
class Line:
    """One row of the table: varying settings, variant, agreeing published figures if any, and each metric's mean and 95
    % interval."""

    settings: tuple[str, ...]
    variant: str
    count: int
    numbers: tuple[str, ...]
    command: str


def summarize(about: Mapping[str, Any], head: Sequence[str], lines: Iterable[Sequence[str]]) -> Summary:
    return summarized(
        head, lines, about["axes"], about["metrics"], about["dimensions"], thresholds(about), is_exact(about)
    )


def is_exact(about: Mapping[str, Any]) -> bool:
    """Return whether no seed changes a number: a checkpoint draws nothing."""
    keys = [axis["key"] for axis in about["axes"]] + [word.lstrip("+").partition("=")[0] for word in about["fixed"]]
    return "model=none" not in about["fixed"] and any(key.split(".")[0] == "model" for key in keys)


def closing(about: Mapping[str, Any], summary: Summary) -> str:
    """Say how many points there are, how many failed, how long it took, and whether any are missing."""
    missing = f" of {about['points']:,}" if partial(about, summary) else ""
    noun = "point" if about["points"] == 1 else "points"
    parts = [f"{summary.points:,}{missing} {noun}", f"{summary.failed:,} failed"]
    if "seconds" in about:
        parts.append(spoken_time(about["seconds"]) if about["seconds"] >= 10 else f"{about['seconds']:.1f} s")
    text = ", ".join(parts)
    if missing:
        reason = "" if about["status"] == "partial" else f" ({about['status']})"
        text = f"Partial{reason}: {text}. The same command continues it"
    return " ".join([f"{text}.", *agreement(summary)])


def agreement(summary: Summary) -> Iterator[str]:
    """Say how many published figures agree, and in how many points one does not; nothing if there are none."""
    if summary.tally.printed:
        yield words.PUBLISHED_AGREE.format(tally=summary.tally)
    if summary.disagreeing:
        points = "1 point disagrees" if summary.disagreeing == 1 else f"{summary.disagreeing:,} points disagree"
        yield f"{points} with a published result."


def partial(about: Mapping[str, Any], summary: Summary) -> bool:
    return bool(summary.points < about["points"])


def varying(summary: Summary) -> list[int]:
    """Return the indices of the axes that differ between the cells."""
    return [place for place in range(len(summary.axes)) if len({key[place] for key in summary.cells}) > 1]


@dataclass(frozen=True)
class Lines:
    """The table: its headings, its rows, their total number, and which columns are hidden at reading depth.

    A terminal shows the `heads`, which are names of settings and fields; a page shows the `titles`.
    """

    heads: tuple[str, ...]
    titles: tuple[str, ...]
    lines: tuple[Line, ...]
    count: int
    deep: tuple[bool, ...]


def table(about: Mapping[str, Any], summary: Summary, most: int, depth: str = "all") -> Lines:
    """Return the table with at most `most` rows; a setting that changes no row has no column."""
    names = metrics(summary, depth)
    rows = merge_rows(summary, names)
    places = [place for place in varying(summary) if any(row.labels[place] != ANY for row in rows)]
    lines = tuple(
        Line(
            tuple(row.labels[place] for place in places),
            row.labels[-1],
            row.count,
            (*[str(row.tally or "")] * bool(summary.tallies), *numbers_shown(row, names)[1:]),
            repeat(about, summary, row.key),
        )
        for row in rows[:most]
    )
    agree = ["agree"] * bool(summary.tallies)
    heads = [*(summary.axes[place] for place in places), words.VARIANT_HEAD, words.POINTS, *agree]
    deep = (*(False for _ in heads), *map(is_deep, names))
    return Lines((*heads, *names), (*heads, *map(titled, names)), lines, len(rows), deep)


def depth_of(about: Mapping[str, Any]) -> str:
    """Return the report depth of a sweep: `all` or `reading`."""
    return "reading" if about.get("report", {}).get("depth") == "reading" else "all"


def metrics(summary: Summary, depth: str = "all") -> list[str]:
    """Return the metrics in the table; differences between variants are left out if there are none."""
    left_out = TO_THE_FIRST if len(summary.variants) == 1 or all_alike(summary) else ()
    shown = [name for name in TABLE if name in summary.most and name not in left_out] + summary.more
    shown = ["error", *shown] if has_errors(summary) else shown
    return [name for name in shown if depth == "all" or not is_deep(name)]


def has_errors(summary: Summary) -> bool:
    """Return whether any error exceeds rounding in float64, so that it is worth a column, as with `dtype`."""
    return "error" in summary.most and summary.most["error"][0][0] > FLOOR


def all_alike(summary: Summary) -> bool:
    """Return whether all variants equal the first to rounding, so that there is nothing to compare."""
    return bool(summary.most.get("shift")) and summary.most["shift"][0][0] <= ALIKE


def means_table(about: Mapping[str, Any], summary: Summary, depth: str = "all") -> Table:
    """Return the means of every combination as a table for papers."""
    shown = table(about, summary, IN_REPORT, depth)
    lines = tuple((*line.settings, line.variant, str(line.count), *line.numbers) for line in shown.lines)
    caption = (
        "Means over the seeds, each ± half of its 95% confidence interval; of fewer than five numbers, the least and "
        "the most instead."
    )
    return Table("means", caption, shown.titles, lines)


def repeat(about: Mapping[str, Any], summary: Summary, key: tuple[str, ...]) -> str:
    """Return the command that repeats a row of the table: its points over all seeds, or its first point."""
    first = summary.first[key]
    seeds = [axis for axis in about["axes"] if axis["key"] == "seed"]
    alone = all(len(together) == 1 for together in about["dimensions"])
    if not (seeds and alone and not any(".." in label for label in key[:-1])):
        return point_command(about, first).line
    settings, folders = point_words(about, first)
    settings = [seed_word(seeds[0]) if word.startswith("seed=") else word for word in settings]
    return Repeat(tuple(settings), tuple(folders), many=True, own=recorded_code.files_of_members(about)).line


def seed_word(axis: Mapping[str, Any]) -> str:
    """Format the swept seeds as a word."""
    if "range" not in axis:
        return f"seed={','.join(axis['words'])}"
    start, step = axis["range"]
    stop = start + step * axis["count"]
    return f"seed=range({start},{stop})" if step == 1 else f"seed=range({start},{stop},{step})"


def extremes(about: Mapping[str, Any], summary: Summary, depth: str) -> Iterator[dict[str, Any]]:
    """Yield where each metric shown at a depth is smallest and largest, with the command that repeats the point."""
    for name in metrics(summary, depth):
        for which, rows in (("smallest", summary.least[name]), (words.LARGEST, summary.most[name])):
            number, point, variant = rows[0]
            if summary.least[name][0][0] != summary.most[name][0][0]:
                yield {
                    "metric": titled(name),
                    "which": which,
                    "number": brief(number),
                    "variant": variant,
                    "settings": " ".join(swept_words(about, point)) or "the one point",
                    "command": point_command(about, point).line,
                    "deep": is_deep(name),
                }


def swept_words(about: Mapping[str, Any], point: int) -> list[str]:
    """Return the words of a point that vary over the sweep."""
    settings, _ = point_words(about, point)
    return settings[len(settings) - len(about["axes"]) :]


def disagreements(about: Mapping[str, Any], summary: Summary) -> Iterator[tuple[str, str, str]]:
    """Yield the points that disagree with a published figure: settings, tally, and command to repeat them."""
    for point, tally in summary.disagreements.items():
        yield " ".join(swept_words(about, point)), str(tally), point_command(about, point).line


def failures(about: Mapping[str, Any], summary: Summary) -> Iterator[tuple[str, int, str, str]]:
    """Yield each error, the most frequent first: its points, their shared settings, and the command for the first."""
    for message, failure in sorted(summary.failures.items(), key=lambda pair: -pair[1].count)[:20]:
        varied = [axis for axis in about["axes"] if axis["count"] > 1]
        shared = " ".join(
            f"{axis['key']}={failure.shared[axis['column']]}" for axis in varied if axis["column"] in failure.shared
        )
        yield message, failure.count, shared if failure.count > 1 else "", point_command(about, failure.first).line


def terminal(about: Mapping[str, Any], summary: Summary) -> str:
    """Return the text that a sweep prints: effects, table, failures, disagreements with published figures, summary."""
    shown = table(about, summary, IN_TERMINAL, depth_of(about))
    parts = []
    sentences, answers = summary.answers.sentences, summary.answers
    if sentences or answers.notes:
        wrapped = TextWrapper(WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        more = [words.MORE_EFFECTS.format(count=len(sentences) - MOST_SAID)] if len(sentences) > MOST_SAID else []
        lines = [*sentences[:MOST_SAID], *more, *answers.notes]
        parts.append("\n".join(wrapped.fill(plain(sentence, LONGEST)) for sentence in lines))
    if shown.lines:
        rows = [[*line.settings, line.variant, str(line.count), *line.numbers] for line in shown.lines]
        parts.append(drawn(list(shown.heads), rows))
    if shown.count > len(shown.lines):
        parts.append(f"{len(shown.lines)} of {shown.count:,} rows; the report has more, the results have all.")
    struck = [
        f"{count:,} x {plain(message, 100)}{f' {words.ALL_WITH.format(shared=shared)}' if shared else ''}\n    {again}"
        for message, count, shared, again in failures(about, summary)
    ]
    if struck:
        parts.append("\n".join(struck[:5]))
    odd = [
        f"{plain(settings, 100)}: {tally} published results agree\n    {again}"
        for settings, tally, again in disagreements(about, summary)
    ]
    if odd:
        parts.append("\n".join(odd[:5]))
    return "\n\n".join([*parts, closing(about, summary)])


def worth_plotting(summary: Summary, depth: str = "all") -> Sequence[str]:
    """Return up to four metrics that vary beyond rounding, between cells or over the seeds of a single cell."""
    chosen = []
    errors = ("error",) if has_errors(summary) else ()
    for name in (*summary.more, *errors, *(name for name in DRAWN if depth == "all" or not is_deep(name))):
        means = [cell[name].mean for cell in summary.cells.values() if name in cell]
        if len(summary.cells) == 1 and means:
            means = [summary.least[name][0][0], summary.most[name][0][0]]
        if means and max(means) - min(means) > 1e-9 * max(map(abs, means)):
            chosen.append(name)
    return chosen[:4]


def contents(about: Mapping[str, Any], summary: Summary, depth: str) -> dict[str, Any]:
    """Return the contents that the page and the Markdown report share at this depth."""
    shown = table(about, summary, IN_REPORT, depth)
    answers = summary.answers
    swept = ", ".join(axis["key"] for axis in about["axes"])
    return {
        "title": about["title"] or (f"Sweep over {swept}" if about["axes"] else "A sweep of one point"),
        "sentence": closing(about, summary),
        "partial": partial(about, summary),
        "command": about["command"],
        "axes": [axis_told(axis) for axis in about["axes"]],
        "fixed": [word for word in about["fixed"] if not word.startswith("sweep.")],
        "skipped": about["skipped"],
        "answers": answers.sentences[:MOST_SAID],
        "warnings": answers.warnings,
        "notes": answers.notes,
        "effects": effects_table(answers).at_depth(depth),
        "shares": shares_table(answers).at_depth(depth),
        "percentiles": percentiles_table(answers.cube).at_depth(depth),
        "heads": list(shown.titles),
        "deep": list(shown.deep),
        "lines": [
            ([*line.settings, line.variant, str(line.count), *line.numbers], line.command) for line in shown.lines
        ],
        "cells": shown.count,
        "seeds": summary.seeds,
        "extremes": list(extremes(about, summary, depth)),
        "failures": list(failures(about, summary)),
        "disagreements": list(disagreements(about, summary)),
        "disagreeing": summary.disagreeing,
        "results": "results.csv" if about["format"] == "csv" else "parts/*.parquet",
        "origin": [pair for pair in origin(about) if pair[1]],
    }


def axis_told(axis: Mapping[str, Any]) -> str:
    """Describe an axis in a few words."""
    if "range" in axis:
        return f"{axis['key']}: {axis['count']:,} values from {axis['low']} to {axis['high']}"
    values = [f"{word} ({ALL})" if word == endless_text(axis) else word for word in axis["words"]]
    shown = ", ".join(values if len(values) <= 8 else [*values[:7], "...", values[-1]])
    return f"{axis['key']}: {shown}"


def plotted(about: Mapping[str, Any], summary: Summary, depth: str) -> Plotted:
    """Return the data that the plots and the explorer of a sweep draw at this depth."""
    metrics = worth_plotting(summary, depth)
    layers, heads = head_maps(summary)
    return Plotted(
        axes=summary.axes,
        variants=summary.variants,
        cells=summary.cells,
        metrics=metrics,
        changes=drawn_changes(summary.answers, metrics[:2]),
        layers=layers,
        heads=heads,
        further=(*about.get("sweep", {}).get("plot", ()), *figures(about).only),
        size=size(figures(about)),
        only=figures(about).only,
    )


def explorable(about: Mapping[str, Any], summary: Summary) -> dict[str, Any] | None:
    """Return the data of the page's explorer, ready for JSON, or None."""
    effects = summary.answers.effects
    first = effects[0].metric if effects else "entropy"
    return explored(plotted(about, summary, "all"), metrics(summary), first) if summary.most else None


def head_maps(summary: Summary) -> tuple[list[str], dict[str, Array]]:
    """Return the layers of a sweep in order, and a map `[layer head]` of each head pattern of its first variant.

    Points of the same layer are averaged; NaN where nothing was measured.
    """
    places = [place for name in summary.most if (place := head_and_pattern(name))]
    if not places or LAYER not in summary.axes:
        return [], {}
    axis, heads = summary.axes.index(LAYER), max(head for head, _ in places)
    layers = in_order(list(dict.fromkeys(key[axis] for key in summary.cells)))
    return layers, {
        pattern: pattern_map(summary, axis, (layers, heads), pattern)
        for pattern in dict.fromkeys(pattern for _, pattern in places)
    }


def pattern_map(summary: Summary, axis: int, shape: tuple[Sequence[str], int], pattern: str) -> Array:
    """Return one pattern of the first variant, `[layer head]`, NaN where nothing was measured."""
    layers, heads = shape
    sums, counts = np.zeros((len(layers), heads)), np.zeros((len(layers), heads))
    for key, cell in summary.cells.items():
        for head in range(heads):
            moments = cell.get(head_column(head + 1, pattern))
            if moments is not None and key[-1] == summary.variants[0]:
                sums[layers.index(key[axis]), head] += moments.mean
                counts[layers.index(key[axis]), head] += 1
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
