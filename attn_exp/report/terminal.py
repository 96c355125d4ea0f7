"""Terminal output of a run: a table, a sentence, the published figures, and the findings of checks."""

from __future__ import annotations

from collections.abc import Sequence

from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.row import COLUMNS, Agreement, at_depth
from attn_exp.report import sentences
from attn_exp.report.escapes import brief, plain, visible
from attn_exp.report.sentences import agreed, who_agrees

NAMES = {name: column for name, column in COLUMNS.items() if "terminal" in column.shown}
"""Fields of a row in the terminal's table; the dtype is left out if all are float64."""


def summary(comparison: Comparison) -> str:
    ordinary = all(row.computed_in == "float64" for row in comparison.rows)
    known = at_depth(NAMES, comparison.config.report.depth)
    names = [name for name in known if name != "computed_in" or not ordinary]
    cells = [[brief(getattr(row, name)) for name in names] for row in comparison.rows]
    parts = [table(names, cells), visible(who_agrees(comparison.rows, comparison.steps, comparison.config.against))]
    parts += filter(None, [sentences.describe_tokens(comparison.problem).queries])
    checked = [row for row in comparison.rows if row.checked]
    queries = len(comparison.problem.tokens)
    if any(row.checked < queries for row in checked):  # otherwise the table has the errors
        parts.append(sentences.accuracy(checked, queries))
    if comparison.published:
        parts += [published(comparison.published)]
    for finding in comparison.checks:
        heads = list(finding.columns)
        cells = [[brief(getattr(record, name)) for name in heads] for record in finding.records]
        parts += [*([table(heads, cells)] if cells else []), visible(finding.sentence)]
    return "\n\n".join(parts)


def published(agreements: Sequence[Agreement]) -> str:
    cells = [
        [result.quantity, brief(result.largest_difference), brief(result.tolerance), brief(result.agrees)]
        for result in agreements
    ]
    head = ["published", "difference", "tolerance", "agrees"]
    return f"{table(head, cells)}\n\n{agreed(agreements)}"


def table(head: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    lines = [list(head), *([plain(cell) for cell in line] for line in cells)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
