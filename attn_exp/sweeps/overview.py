"""The contents of a sweep's report, shared by the terminal and the pages.

Each function takes the manifest of a sweep and the `Summary` of its rows, and returns text, tables, or data for plots
and templates.
"""

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
from attn_exp.report.sentences import table as format_table
from attn_exp.report.sweep_explorer import make_explorer_data
from attn_exp.report.sweep_plots import ALL, Plotted, in_order
from attn_exp.sweeps.effects import FLOOR
from attn_exp.sweeps.plan import Manifest, list_words, point_command, read_figures
from attn_exp.sweeps.rows import endless_text
from attn_exp.sweeps.summary import (
    LAYER,
    Summary,
    effects_table,
    format_mean,
    head_and_pattern,
    list_changes,
    shares_table,
)

# maximum number of table rows in the terminal and in the report, and the width of sentences in the terminal
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

TABLE = [name for name, column in COLUMNS.items() if "sweep" in column.shown]  # metrics that the table of means shows
# metrics that may be plotted, the most interesting first
DRAWN = sorted((name for name in COLUMNS if COLUMNS[name].drawn), key=lambda name: COLUMNS[name].drawn)


def format_closing(manifest: Manifest, summary: Summary) -> str:
    is_partial = summary.points < manifest["points"]
    points = count_of(manifest["points"], "point")
    text = f"{f'{summary.points:,} of ' if is_partial else ''}{points}, {summary.failed:,} failed"
    text += f", {format_duration(manifest['seconds'])}" if "seconds" in manifest else ""
    if is_partial:
        reason = "" if manifest["status"] == "partial" else f" ({manifest['status']})"
        text = f"Partial{reason}: {text}. Run the same command again to continue"
    agreement = [f"{summary.tally} published results agree."] if summary.tally else []
    if summary.disagreements:
        disagreeing = count_of(len(summary.disagreements), "point disagrees", "points disagree")
        agreement.append(f"{disagreeing} with a published result.")
    return " ".join([f"{text}.", *agreement])


def means_table(summary: Summary, most: int, depth: str = "all", named: Callable[[str], str] = column_title) -> Table:
    """Return the means of every combination as a table with at most `most` rows.

    The columns are the settings that vary, the variant, the number of points, and each metric's mean and interval.
    `named` returns the column header of a metric; the terminal shows the field name instead.
    """
    names = list_shown_metrics(summary, depth)
    varying = [axis for axis in range(len(summary.axes)) if len({key[axis] for key in summary.cells}) > 1]
    lines = []
    for key in list(summary.cells)[:most]:
        cell, settings = summary.cells[key], (key[axis] for axis in varying)
        count = max((moments.count for moments in cell.values()), default=0)
        lines.append((*settings, key[-1], str(count), *(format_mean(cell.get(name)) for name in names)))
    heads = (*(summary.axes[axis] for axis in varying), "variant", "points", *map(named, names))
    caption = (
        "Means over the seeds, each ± half the width of its 95% confidence interval; for fewer than five numbers, the "
        "smallest and largest instead."
    )
    return Table("means", caption, heads, tuple(lines))


def depth_of(manifest: Manifest) -> str:
    return "reading" if manifest["report"].get("depth") == "reading" else "all"


def list_shown_metrics(summary: Summary, depth: str = "all") -> list[str]:
    """Return the metrics to tabulate, without metrics that compare variants if all variants agree."""
    is_alike = "max_diff" in summary.most and summary.most["max_diff"] <= ALIKE
    left_out = TO_THE_FIRST if len(summary.variants) == 1 or is_alike else ()
    names = [name for name in TABLE if name in summary.most and name not in left_out] + summary.more
    names = ["error", *names] if has_errors(summary) else names
    return [name for name in names if depth == "all" or not is_deep(name)]


def has_errors(summary: Summary) -> bool:
    """Return whether any error exceeds the rounding of float64, as with a lower `dtype`; tables then show errors."""
    return "error" in summary.most and summary.most["error"] > FLOOR


def paper_tables(manifest: Manifest, summary: Summary) -> dict[str, Table]:
    means = means_table(summary, IN_REPORT, depth_of(manifest))
    return {each.name: each for each in (effects_table(summary.answers), shares_table(summary.answers), means)}


def format_point(manifest: Manifest, point: int) -> str:
    settings = point_command(manifest, point).words
    return " ".join(settings[len(settings) - len(manifest["axes"]) :])


def list_disagreements(manifest: Manifest, summary: Summary) -> Iterator[tuple[str, str, str]]:
    """Yield each point that disagrees with a published result: its settings, tally, and the command to repeat it."""
    for point, tally in list(summary.disagreements.items())[:NAMED]:
        yield format_point(manifest, point), tally, point_command(manifest, point).line


def list_failures(manifest: Manifest, summary: Summary) -> Iterator[tuple[str, int, str]]:
    """Yield each error, the most frequent first, with its number of points and the command for the first of them."""
    for message, points in sorted(summary.failures.items(), key=lambda pair: -len(pair[1]))[:20]:
        yield message, len(points), point_command(manifest, points[0]).line


def format_terminal(manifest: Manifest, summary: Summary) -> str:
    means, answers, parts = means_table(summary, IN_TERMINAL, depth_of(manifest), str), summary.answers, []
    further = len(answers.sentences) - MOST_SAID
    sentences = [
        *answers.sentences[:MOST_SAID],
        *([f"The report and effects.csv have {further} more."] if further > 0 else []),
    ]
    if sentences or answers.notes:
        wrapped = TextWrapper(WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        parts.append("\n".join(wrapped.fill(plain(sentence, LONGEST)) for sentence in (*sentences, *answers.notes)))
    if means.lines:
        parts.append(format_table(means.head, means.lines))
    if len(summary.cells) > len(means.lines):
        parts.append(
            f"{len(means.lines)} of {len(summary.cells):,} rows; the report shows more, and the results file has all."
        )
    failure_lines = [
        f"{count:,} x {plain(message, 100)}\n    {command}"
        for message, count, command in list_failures(manifest, summary)
    ]
    disagreement_lines = [
        f"{plain(settings, 100)}: {tally} published results agree\n    {command}"
        for settings, tally, command in list_disagreements(manifest, summary)
    ]
    parts += ["\n".join(lines[:5]) for lines in (failure_lines, disagreement_lines) if lines]
    return "\n\n".join([*parts, format_closing(manifest, summary)])


def metrics_to_plot(summary: Summary, depth: str = "all") -> Sequence[str]:
    errors = ("error",) if has_errors(summary) else ()
    names = (*summary.more, *errors, *(name for name in DRAWN if depth == "all" or not is_deep(name)))
    least, most = summary.least, summary.most
    return [name for name in names if name in most and most[name] - least[name] > 1e-9 * abs(most[name])][:4]


def page_contents(manifest: Manifest, summary: Summary, depth: str) -> dict[str, Any]:
    means, answers = means_table(summary, IN_REPORT, depth), summary.answers
    is_deep_column = list(map(is_deep, list_shown_metrics(summary, depth)))
    swept = ", ".join(axis["key"] for axis in manifest["axes"])
    return {
        "title": manifest["title"] or (f"Sweep over {swept}" if manifest["axes"] else "A sweep of one point"),
        "sentence": format_closing(manifest, summary),
        "partial": summary.points < manifest["points"],
        "about": manifest,
        "summary": summary,
        "axes": [format_axis(axis) for axis in manifest["axes"]],
        "fixed": [word for word in manifest["fixed"] if not word.startswith("sweep.")],
        "answers": answers.sentences[:MOST_SAID],
        "effects": effects_table(answers).at_depth(depth),
        "shares": shares_table(answers).at_depth(depth),
        "caption": means.caption,
        "heads": list(means.head),
        "deep": [False] * (len(means.head) - len(is_deep_column)) + is_deep_column,
        "lines": [
            (line, point_command(manifest, summary.first[key]).line)
            for line, key in zip(means.lines, summary.cells, strict=False)
        ],
        "failures": list(list_failures(manifest, summary)),
        "disagreements": list(list_disagreements(manifest, summary)),
        "results": f"results.{manifest['format']}",
        "origin": [pair for pair in origin(manifest) if pair[1]],
    }


def format_axis(axis: Mapping[str, Any]) -> str:
    if "range" in axis:
        ends = list_words(axis)
        return f"{axis['key']}: {axis['count']:,} values from {ends[0]} to {ends[-1]}"
    values = [f"{word} ({ALL})" if word == endless_text(axis) else word for word in axis["words"]]
    return f"{axis['key']}: " + ", ".join(values if len(values) <= 8 else [*values[:7], "...", values[-1]])


def make_plot_data(manifest: Manifest, summary: Summary, depth: str) -> Plotted:
    metrics, figures = metrics_to_plot(summary, depth), read_figures(manifest)
    layers, heads = make_head_maps(summary)
    return Plotted(
        axes=summary.axes,
        variants=summary.variants,
        cells=summary.cells,
        metrics=metrics,
        changes=list_changes(summary.answers, metrics[:2]),
        layers=layers,
        heads=heads,
        further=(*manifest["sweep"].get("plot", ()), *figures.only),
        size=size(figures),
        only=figures.only,
    )


def explorer_data(manifest: Manifest, summary: Summary) -> dict[str, Any] | None:
    """Return the data of the page's explorer, ready for JSON; None if there are no results."""
    effects = summary.answers.effects
    first = effects[0].metric if effects else "entropy"
    return (
        make_explorer_data(make_plot_data(manifest, summary, "all"), list_shown_metrics(summary), first)
        if summary.most
        else None
    )


def make_head_maps(summary: Summary) -> tuple[list[str], dict[str, Array]]:
    """Return the layers of a sweep in order, and a map `[layer head]` of each head pattern, for the first variant.

    A map holds the mean over the points of a layer, and NaN where nothing was measured.
    """
    head_columns = {name: head_and_name for name in summary.most if (head_and_name := head_and_pattern(name))}
    if not head_columns or LAYER not in summary.axes:
        return [], {}
    axis = summary.axes.index(LAYER)
    layers = in_order(list(dict.fromkeys(key[axis] for key in summary.cells)))
    count = max(head for head, _ in head_columns.values())
    maps = {pattern: np.full((len(layers), count), np.nan) for _, pattern in head_columns.values()}
    cells = [(key[axis], cell) for key, cell in summary.cells.items() if key[-1] == summary.variants[0]]
    for name, (head, pattern) in head_columns.items():
        for row, layer in enumerate(layers):
            means = [cell[name].mean for layer_of_cell, cell in cells if layer_of_cell == layer and name in cell]
            maps[pattern][row, head - 1] = np.mean(means or [np.nan])
    return layers, maps
