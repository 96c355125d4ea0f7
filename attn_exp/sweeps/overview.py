"""The contents of a sweep's report, shared by the terminal and the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import TextWrapper
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import count_of
from attn_exp.experiment.row import COLUMNS, column_title, is_deep
from attn_exp.processes import format_duration
from attn_exp.report.escapes import plain
from attn_exp.report.figures.figure import size
from attn_exp.report.papers import Table
from attn_exp.report.sentences import origin
from attn_exp.report.sentences import table as drawn
from attn_exp.report.sweep_explorer import explored
from attn_exp.report.sweep_plots import ALL, Plotted, in_order
from attn_exp.sweeps.effects import FLOOR
from attn_exp.sweeps.plan import About, list_words, point_command, read_figures
from attn_exp.sweeps.rows import endless_text
from attn_exp.sweeps.summary import (
    LAYER,
    Summary,
    drawn_changes,
    effects_table,
    head_and_pattern,
    mean_and_interval,
    shares_table,
)

IN_TERMINAL, IN_REPORT, WIDTH = 24, 200, 120
LONGEST = 3000
"""Maximum length of a sentence in the terminal."""
MOST_SAID = 5
"""Maximum number of effects described in words; the table has all of them."""
ALIKE = 1e-9
"""Outputs that differ by less than this are equal up to rounding."""
NAMED = 20
"""Maximum number of listed points that disagree with a published result."""
TO_THE_FIRST = ("max_diff", "cosine")
"""Metrics that compare a variant with the baseline row."""

TABLE = [name for name, column in COLUMNS.items() if "sweep" in column.shown]
DRAWN = sorted((name for name in COLUMNS if COLUMNS[name].drawn), key=lambda name: COLUMNS[name].drawn)


def closing(about: About, summary: Summary) -> str:
    is_partial = summary.points < about["points"]
    points = count_of(about["points"], "point")
    text = f"{f'{summary.points:,} of ' * is_partial}{points}, {summary.failed:,} failed"
    text += f", {format_duration(about['seconds'])}" if "seconds" in about else ""
    if is_partial:
        reason = "" if about["status"] == "partial" else f" ({about['status']})"
        text = f"Partial{reason}: {text}. Run the same command again to continue"
    agreement = [f"{summary.tally} published results agree."] if summary.tally else []
    if summary.disagreements:
        odd = count_of(len(summary.disagreements), "point disagrees", "points disagree")
        agreement.append(f"{odd} with a published result.")
    return " ".join([f"{text}.", *agreement])


def table(summary: Summary, most: int, depth: str = "all", named: Callable[[str], str] = column_title) -> Table:
    """Return the means of every combination as a table with at most `most` rows.

    The columns are the settings that vary, the variant, the number of points, and each metric's mean and interval.
    `named` returns the column header of a metric; the terminal shows the field name instead.
    """
    names = metrics(summary, depth)
    places = [place for place in range(len(summary.axes)) if len({key[place] for key in summary.cells}) > 1]
    lines = []
    for key in list(summary.cells)[:most]:
        cell, settings = summary.cells[key], (key[place] for place in places)
        count = max((moments.count for moments in cell.values()), default=0)
        lines.append((*settings, key[-1], str(count), *(mean_and_interval(cell.get(name)) for name in names)))
    heads = (*(summary.axes[place] for place in places), "variant", "points", *map(named, names))
    caption = (
        "Means over the seeds, each ± half of its 95% confidence interval; for fewer than five numbers, the smallest "
        "and largest instead."
    )
    return Table("means", caption, heads, tuple(lines))


def depth_of(about: About) -> str:
    return "reading" if about["report"].get("depth") == "reading" else "all"


def metrics(summary: Summary, depth: str = "all") -> list[str]:
    """Return the metrics to tabulate; those that compare variants are left out if all variants agree."""
    is_alike = "max_diff" in summary.most and summary.most["max_diff"] <= ALIKE
    left_out = TO_THE_FIRST if len(summary.variants) == 1 or is_alike else ()
    shown = [name for name in TABLE if name in summary.most and name not in left_out] + summary.more
    shown = ["error", *shown] if has_errors(summary) else shown
    return [name for name in shown if depth == "all" or not is_deep(name)]


def has_errors(summary: Summary) -> bool:
    """Return whether any error exceeds rounding in float64, as it does at a lower `dtype`, and deserves a column."""
    return "error" in summary.most and summary.most["error"] > FLOOR


def paper_tables(about: About, summary: Summary) -> dict[str, Table]:
    means = table(summary, IN_REPORT, depth_of(about))
    return {each.name: each for each in (effects_table(summary.answers), shares_table(summary.answers), means)}


def swept_words(about: About, point: int) -> str:
    settings = point_command(about, point).words
    return " ".join(settings[len(settings) - len(about["axes"]) :])


def disagreements(about: About, summary: Summary) -> Iterator[tuple[str, str, str]]:
    """Yield each point that disagrees with a published result: its settings, tally, and the command to repeat it."""
    for point, tally in list(summary.disagreements.items())[:NAMED]:
        yield swept_words(about, point), tally, point_command(about, point).line


def failures(about: About, summary: Summary) -> Iterator[tuple[str, int, str]]:
    """Yield each error, the most frequent first, with its number of points and the command for the first of them."""
    for message, points in sorted(summary.failures.items(), key=lambda pair: -len(pair[1]))[:20]:
        yield message, len(points), point_command(about, points[0]).line


def terminal(about: About, summary: Summary) -> str:
    shown, answers, parts = table(summary, IN_TERMINAL, depth_of(about), str), summary.answers, []
    more = len(answers.sentences) - MOST_SAID
    said = [*answers.sentences[:MOST_SAID], *([f"The report and effects.csv have {more} more."] if more > 0 else [])]
    if said or answers.notes:
        wrapped = TextWrapper(WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        parts.append("\n".join(wrapped.fill(plain(sentence, LONGEST)) for sentence in (*said, *answers.notes)))
    if shown.lines:
        parts.append(drawn(shown.head, shown.lines))
    if len(summary.cells) > len(shown.lines):
        parts.append(
            f"{len(shown.lines)} of {len(summary.cells):,} rows; the report shows more, and the results file has all."
        )
    struck = [f"{count:,} x {plain(message, 100)}\n    {again}" for message, count, again in failures(about, summary)]
    odd = [
        f"{plain(settings, 100)}: {tally} published results agree\n    {again}"
        for settings, tally, again in disagreements(about, summary)
    ]
    parts += ["\n".join(lines[:5]) for lines in (struck, odd) if lines]
    return "\n\n".join([*parts, closing(about, summary)])


def worth_plotting(summary: Summary, depth: str = "all") -> Sequence[str]:
    errors = ("error",) if has_errors(summary) else ()
    names = (*summary.more, *errors, *(name for name in DRAWN if depth == "all" or not is_deep(name)))
    least, most = summary.least, summary.most
    varied = (name for name in names if name in most and most[name] - least[name] > 1e-9 * abs(most[name]))
    return list(varied)[:4]


def contents(about: About, summary: Summary, depth: str) -> dict[str, Any]:
    shown, answers = table(summary, IN_REPORT, depth), summary.answers
    deep = list(map(is_deep, metrics(summary, depth)))
    swept = ", ".join(axis["key"] for axis in about["axes"])
    return {
        "title": about["title"] or (f"Sweep over {swept}" if about["axes"] else "A sweep of one point"),
        "sentence": closing(about, summary),
        "partial": summary.points < about["points"],
        "about": about,
        "summary": summary,
        "axes": [format_axis(axis) for axis in about["axes"]],
        "fixed": [word for word in about["fixed"] if not word.startswith("sweep.")],
        "answers": answers.sentences[:MOST_SAID],
        "effects": effects_table(answers).at_depth(depth),
        "shares": shares_table(answers).at_depth(depth),
        "caption": shown.caption,
        "heads": list(shown.head),
        "deep": [False] * (len(shown.head) - len(deep)) + deep,
        "lines": [
            (line, point_command(about, summary.first[key]).line)
            for line, key in zip(shown.lines, summary.cells, strict=False)
        ],
        "failures": list(failures(about, summary)),
        "disagreements": list(disagreements(about, summary)),
        "results": f"results.{about['format']}",
        "origin": [pair for pair in origin(about) if pair[1]],
    }


def format_axis(axis: Mapping[str, Any]) -> str:
    if "range" in axis:
        ends = list_words(axis)
        return f"{axis['key']}: {axis['count']:,} values from {ends[0]} to {ends[-1]}"
    values = [f"{word} ({ALL})" if word == endless_text(axis) else word for word in axis["words"]]
    shown = ", ".join(values if len(values) <= 8 else [*values[:7], "...", values[-1]])
    return f"{axis['key']}: {shown}"


def plotted(about: About, summary: Summary, depth: str) -> Plotted:
    metrics, figures = worth_plotting(summary, depth), read_figures(about)
    layers, heads = head_maps(summary)
    return Plotted(
        axes=summary.axes,
        variants=summary.variants,
        cells=summary.cells,
        metrics=metrics,
        changes=drawn_changes(summary.answers, metrics[:2]),
        layers=layers,
        heads=heads,
        further=(*about["sweep"].get("plot", ()), *figures.only),
        size=size(figures),
        only=figures.only,
    )


def explorable(about: About, summary: Summary) -> dict[str, Any] | None:
    """Return the data of the page's explorer, ready for JSON; None if there are no results."""
    effects = summary.answers.effects
    first = effects[0].metric if effects else "entropy"
    return explored(plotted(about, summary, "all"), metrics(summary), first) if summary.most else None


def head_maps(summary: Summary) -> tuple[list[str], dict[str, Array]]:
    """Return the layers of a sweep in order, and for its first variant a map `[layer head]` of each head pattern.

    Points of the same layer are averaged; a map is NaN where nothing was measured.
    """
    columns = {name: place for name in summary.most if (place := head_and_pattern(name))}
    if not columns or LAYER not in summary.axes:
        return [], {}
    axis = summary.axes.index(LAYER)
    layers = in_order(list(dict.fromkeys(key[axis] for key in summary.cells)))
    count = max(head for head, _ in columns.values())
    maps = {pattern: np.full((len(layers), count), np.nan) for _, pattern in columns.values()}
    cells = [(key[axis], cell) for key, cell in summary.cells.items() if key[-1] == summary.variants[0]]
    for name, (head, pattern) in columns.items():
        for row, layer in enumerate(layers):
            means = [cell[name].mean for place, cell in cells if place == layer and name in cell]
            maps[pattern][row, head - 1] = np.mean(means or [np.nan])
    return layers, maps
