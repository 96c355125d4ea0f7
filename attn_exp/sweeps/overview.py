"""The data of a sweep's report, which the terminal and the pages share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from textwrap import TextWrapper
from typing import Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.row import COLUMNS, is_deep, titled
from attn_exp.patience import spoken_time
from attn_exp.report import words
from attn_exp.report.escapes import brief, plain
from attn_exp.report.figures.figure import size
from attn_exp.report.papers import Table
from attn_exp.report.sentences import origin
from attn_exp.report.sweep.plotted import ALL, Plotted, explored, in_order
from attn_exp.report.terminal import table as drawn
from attn_exp.sweeps.effects import FLOOR
from attn_exp.sweeps.effects_table import drawn_changes, effects_table, shares_table
from attn_exp.sweeps.manifest import About, figures, point_command, point_words
from attn_exp.sweeps.rows import endless_text
from attn_exp.sweeps.summary import LAYER, Summary, head_and_pattern, head_column, mean_and_interval

IN_TERMINAL, IN_REPORT, WIDTH = 24, 200, 120
LONGEST = 3000
"""Maximum length of a sentence in the terminal."""
MOST_SAID = 5
"""Number of effects described in words; the table has all of them."""
ALIKE = 1e-9
"""Outputs that differ by less than this are the same to rounding."""
NAMED = 20
"""How many points that disagree with a published figure are listed."""
TO_THE_FIRST = ("shift", "cosine")
"""Metrics that compare a variant with the first one."""

TABLE = [name for name, column in COLUMNS.items() if "sweep" in column.shown]
DRAWN = sorted((name for name in COLUMNS if COLUMNS[name].drawn), key=lambda name: COLUMNS[name].drawn)


def is_exact(about: About) -> bool:
    """Return whether no seed changes a number: a checkpoint draws nothing."""
    keys = [axis["key"] for axis in about["axes"]] + [word.lstrip("+").partition("=")[0] for word in about["fixed"]]
    return "model=none" not in about["fixed"] and any(key.split(".")[0] == "model" for key in keys)


def closing(about: About, summary: Summary) -> str:
    """Say how many points there are, how many failed, how long it took, and whether any are missing."""
    missing = f" of {about['points']:,}" if summary.points < about["points"] else ""
    noun = "point" if about["points"] == 1 else "points"
    parts = [f"{summary.points:,}{missing} {noun}", f"{summary.failed:,} failed"]
    parts += [spoken_time(about["seconds"])] if "seconds" in about else []
    text = ", ".join(parts)
    if missing:
        reason = "" if about["status"] == "partial" else f" ({about['status']})"
        text = f"Partial{reason}: {text}. The same command continues it"
    agreement = [words.PUBLISHED_AGREE.format(tally=summary.tally)] if summary.tally else []
    if odd := summary.disagreements:
        points = "1 point disagrees" if len(odd) == 1 else f"{len(odd):,} points disagree"
        agreement.append(f"{points} with a published result.")
    return " ".join([f"{text}.", *agreement])


def varying(summary: Summary) -> list[int]:
    """Return the indices of the axes that differ between the cells."""
    return [place for place in range(len(summary.axes)) if len({key[place] for key in summary.cells}) > 1]


class Lines(NamedTuple):
    """The table: its headings, its rows, the combination of each, their total number, and which columns are hidden at
    reading depth.

    A terminal shows the `heads`, which are names of settings and fields; a page shows the `titles`.
    """

    heads: tuple[str, ...]
    titles: tuple[str, ...]
    lines: list[tuple[str, ...]]
    keys: list[tuple[str, ...]]
    total: int
    deep: tuple[bool, ...]


def table(about: About, summary: Summary, most: int, depth: str = "all") -> Lines:
    """Return the table with at most `most` rows: the settings that vary, the variant, the number of points, agreeing
    published figures if any, and each metric's mean and interval."""
    names, places, keys = metrics(summary, depth), varying(summary), list(summary.cells)[:most]
    lines = []
    for key in keys:
        cell = summary.cells[key]
        count = max((moments.count for moments in cell.values()), default=0)
        agree = [summary.tallies.get(key, "")] * bool(summary.tallies)
        settings = (key[place] for place in places)
        lines.append((*settings, key[-1], str(count), *agree, *(mean_and_interval(cell.get(name)) for name in names)))
    agree = ["agree"] * bool(summary.tallies)
    heads = [*(summary.axes[place] for place in places), words.VARIANT_HEAD, words.POINTS, *agree]
    deep = (*(False for _ in heads), *map(is_deep, names))
    return Lines((*heads, *names), (*heads, *map(titled, names)), lines, keys, len(summary.cells), deep)


def depth_of(about: About) -> str:
    """Return the report depth of a sweep: `all` or `reading`."""
    return "reading" if about.get("report", {}).get("depth") == "reading" else "all"


def metrics(summary: Summary, depth: str = "all") -> list[str]:
    """Return the metrics in the table; differences between variants are left out if there are none."""
    is_alike = "shift" in summary.most and summary.most["shift"][0] <= ALIKE
    left_out = TO_THE_FIRST if len(summary.variants) == 1 or is_alike else ()
    shown = [name for name in TABLE if name in summary.most and name not in left_out] + summary.more
    shown = ["error", *shown] if has_errors(summary) else shown
    return [name for name in shown if depth == "all" or not is_deep(name)]


def has_errors(summary: Summary) -> bool:
    """Return whether any error exceeds rounding in float64, so that it is worth a column, as with `dtype`."""
    return "error" in summary.most and summary.most["error"][0] > FLOOR


def paper_tables(about: About, summary: Summary) -> dict[str, Table]:
    """Return the tables for papers: the effects, the shares, and the means of every combination."""
    shown = table(about, summary, IN_REPORT, depth_of(about))
    caption = (
        "Means over the seeds, each ± half of its 95% confidence interval; of fewer than five numbers, the least and "
        "the most instead."
    )
    means = Table("means", caption, shown.titles, tuple(shown.lines))
    tables = effects_table(summary.answers), shares_table(summary.answers), means
    return {each.name: each for each in tables}


def extremes(about: About, summary: Summary, depth: str) -> Iterator[dict[str, Any]]:
    """Yield where each metric shown at a depth is smallest and largest, with the command that repeats the point."""
    for name in metrics(summary, depth):
        for which, (number, point, variant) in (("smallest", summary.least[name]), (words.LARGEST, summary.most[name])):
            if summary.least[name][0] != summary.most[name][0]:
                yield {
                    "metric": titled(name),
                    "which": which,
                    "number": brief(number),
                    "variant": variant,
                    "settings": " ".join(swept_words(about, point)) or "the one point",
                    "command": point_command(about, point).line,
                    "deep": is_deep(name),
                }


def swept_words(about: About, point: int) -> list[str]:
    """Return the words of a point that vary over the sweep."""
    settings, _ = point_words(about, point)
    return settings[len(settings) - len(about["axes"]) :]


def disagreements(about: About, summary: Summary) -> Iterator[tuple[str, str, str]]:
    """Yield the points that disagree with a published figure: settings, tally, and command to repeat them."""
    for point, tally in list(summary.disagreements.items())[:NAMED]:
        yield " ".join(swept_words(about, point)), tally, point_command(about, point).line


def failures(about: About, summary: Summary) -> Iterator[tuple[str, int, str, str]]:
    """Yield each error, the most frequent first: its points, their shared settings, and the command for the first."""
    for message, failure in sorted(summary.failures.items(), key=lambda pair: -pair[1].count)[:20]:
        varied = [axis for axis in about["axes"] if axis["count"] > 1]
        shared = " ".join(
            f"{axis['key']}={failure.shared[axis['column']]}" for axis in varied if axis["column"] in failure.shared
        )
        yield message, failure.count, shared if failure.count > 1 else "", point_command(about, failure.first).line


def terminal(about: About, summary: Summary) -> str:
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
        parts.append(drawn(shown.heads, shown.lines))
    if shown.total > len(shown.lines):
        parts.append(f"{len(shown.lines)} of {shown.total:,} rows; the report has more, the results have all.")
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
    """Return up to four metrics that vary beyond rounding."""
    errors = ("error",) if has_errors(summary) else ()
    names = (*summary.more, *errors, *(name for name in DRAWN if depth == "all" or not is_deep(name)))
    ends = {name: (summary.least[name][0], summary.most[name][0]) for name in names if name in summary.most}
    return [name for name, (least, most) in ends.items() if most - least > 1e-9 * max(abs(least), abs(most))][:4]


def contents(about: About, summary: Summary, depth: str) -> dict[str, Any]:
    """Return the contents that the page and the Markdown report share at this depth."""
    shown = table(about, summary, IN_REPORT, depth)
    answers = summary.answers
    swept = ", ".join(axis["key"] for axis in about["axes"])
    return {
        "title": about["title"] or (f"Sweep over {swept}" if about["axes"] else "A sweep of one point"),
        "sentence": closing(about, summary),
        "partial": summary.points < about["points"],
        "command": about["command"],
        "axes": [axis_told(axis) for axis in about["axes"]],
        "fixed": [word for word in about["fixed"] if not word.startswith("sweep.")],
        "skipped": about["skipped"],
        "answers": answers.sentences[:MOST_SAID],
        "warnings": answers.warnings,
        "notes": answers.notes,
        "effects": effects_table(answers).at_depth(depth),
        "shares": shares_table(answers).at_depth(depth),
        "heads": list(shown.titles),
        "deep": list(shown.deep),
        "lines": [
            (line, point_command(about, summary.first[key]).line)
            for line, key in zip(shown.lines, shown.keys, strict=True)
        ],
        "cells": shown.total,
        "seeds": summary.seeds,
        "extremes": list(extremes(about, summary, depth)),
        "failures": list(failures(about, summary)),
        "disagreements": list(disagreements(about, summary)),
        "disagreeing": len(summary.disagreements),
        "results": f"results.{about['format']}",
        "origin": [pair for pair in origin(about) if pair[1]],
    }


def axis_told(axis: Mapping[str, Any]) -> str:
    """Describe an axis in a few words."""
    if "range" in axis:
        return f"{axis['key']}: {axis['count']:,} values from {axis['low']} to {axis['high']}"
    values = [f"{word} ({ALL})" if word == endless_text(axis) else word for word in axis["words"]]
    shown = ", ".join(values if len(values) <= 8 else [*values[:7], "...", values[-1]])
    return f"{axis['key']}: {shown}"


def plotted(about: About, summary: Summary, depth: str) -> Plotted:
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


def explorable(about: About, summary: Summary) -> dict[str, Any] | None:
    """Return the data of the page's explorer, ready for JSON, or None."""
    effects = summary.answers.effects
    first = effects[0].metric if effects else "entropy"
    return explored(plotted(about, summary, "all"), metrics(summary), first) if summary.most else None


def head_maps(summary: Summary) -> tuple[list[str], dict[str, Array]]:
    """Return the layers of a sweep in order, and a map `[layer head]` of each head pattern of its first variant.

    Points of the same layer are averaged; NaN where nothing was measured.
    """
    columns = {name: place for name in summary.most if (place := head_and_pattern(name))}
    if not columns or LAYER not in summary.axes:
        return [], {}
    axis, heads = summary.axes.index(LAYER), max(head for head, _ in columns.values())
    layers = in_order(list(dict.fromkeys(key[axis] for key in summary.cells)))
    means: dict[tuple[str, str], list[float]] = defaultdict(list)
    for key, cell in summary.cells.items():
        for name in columns.keys() & cell.keys() if key[-1] == summary.variants[0] else ():
            means[key[axis], name].append(cell[name].mean)
    return layers, {
        pattern: np.array(
            [
                [np.mean(means.get((layer, head_column(head + 1, pattern)), np.nan)) for head in range(heads)]
                for layer in layers
            ]
        )
        for pattern in dict.fromkeys(pattern for _, pattern in columns.values())
    }
