"""Tables for papers: the comparison and the published results, in Markdown, LaTeX and HTML.

A number has as many digits as its error allows, at most four. Units are in the column heads. Times are left out, so
equal comparisons give equal tables.

At `report.depth=reading`, a report leaves out what a student has no use for, such as rounding errors and bytes. Columns
and lines that it leaves out are called deep.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from attn_exp.experiment.row import COLUMNS, Comparison, Row, is_deep
from attn_exp.report.escapes import brief, is_number
from attn_exp.report.escapes import html as html_text
from attn_exp.report.escapes import latex as latex_text
from attn_exp.report.templating import piped

NAMES = [name for name, column in COLUMNS.items() if "paper" in column.shown]
LONGEST, CAPTION = 200, 2000
"""Maximum number of characters in a cell and in a caption, in HTML."""

LONG = 40
"""Cells longer than this wrap in LaTeX."""

FITTED = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%" + "\n  "
"""LaTeX that shrinks a table if it is wider than the text."""

GRAPHICX = r"\usepackage{graphicx}"
BOOKTABS, FONTENC = r"\usepackage{booktabs}", r"\usepackage[T1]{fontenc}"


class Table(NamedTuple):
    """A table whose cells are plain text.

    `name`: the name of the table and of its file.
    `head`: the column heads.
    `deep`: the indices of the lines that are left out at `report.depth=reading`.
    """

    name: str
    caption: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    deep: frozenset[int] = frozenset()

    def at_depth(self, depth: str) -> Table:
        if depth == "all":
            return self
        lines = tuple(line for index, line in enumerate(self.lines) if index not in self.deep)
        return self._replace(lines=lines, deep=frozenset())


def deep_lines(metrics: Iterable[str]) -> frozenset[int]:
    """Return the indices of the deep lines of a table; `metrics` has the metric that each line is about."""
    return frozenset(index for index, metric in enumerate(metrics) if is_deep(metric))


def tables(comparison: Comparison) -> list[Table]:
    rows = [row for row in comparison.rows if row.same_as]
    baseline_row = "the first row" if comparison.config.against is None else "the row named by against="
    all_tables = [
        Table(
            "comparison",
            f"Variants of attention on one input; error against a scalar reference, max_diff against {baseline_row}.",
            tuple(COLUMNS[name].title for name in NAMES),
            tuple(tuple(format_field(row, name) for name in NAMES) for row in rows),
        )
    ]
    if comparison.published:
        lines = (
            (
                result.quantity,
                format_two_digits(result.largest_difference),
                format_two_digits(result.tolerance),
                brief(result.agrees),
            )
            for result in comparison.published
        )
        head = ("quantity", "largest difference", "tolerance", "agrees")
        all_tables.append(Table("published", "Published results compared with the computed ones.", head, tuple(lines)))
    return all_tables


def format_field(row: Row, name: str) -> str:
    """Format a field of a row: numbers with the digits that their error allows, other values unchanged."""
    value = getattr(row, name)
    if not isinstance(value, float):
        return brief(value)
    return format_two_digits(value) if COLUMNS[name].exact else format_significant(value, row.error)


def format_two_digits(value: float) -> str:
    return format_significant(value, 0.1 * abs(value), most=2)


def format_significant(value: float, error: float, most: int = 4) -> str:
    """Format a value with at most `most` digits; the error affects only the last of them.

    The result is 0 if the error is as large as the value. Source: JCGM 100:2008, section 7.2.6.
    """
    if not math.isfinite(value):
        return "-"
    if value == 0 or abs(value) <= error:
        return "0"
    digits = most
    if error > 0:
        digits = min(most, 1 + math.floor(math.log10(abs(value))) - math.floor(math.log10(error)))
    text = f"{value:#.{max(1, digits)}g}"
    mantissa, exponent_sign, power = text.partition("e")
    return f"{mantissa.rstrip('.')}{exponent_sign}{power}"


def markdown(table: Table) -> str:
    return f"{table.caption}\n\n{piped(table.lines, table.head)}\n"


def latex(table: Table) -> str:
    """Return a table in LaTeX; it needs the packages booktabs and graphicx."""
    lines = [" & ".join(latex_cell(cell) for cell in line) + r" \\" for line in table.lines]
    columns = [latex_column(column[1:]) for column in zip(table.head, *table.lines, strict=True)]
    return "\n".join(
        (
            f"% {BOOKTABS}{GRAPHICX} and, for pdfLaTeX, {FONTENC}",
            r"\begin{table}",
            r"  \centering",
            r"  \footnotesize",
            r"  \setlength{\tabcolsep}{3pt}",
            r"  \setlength{\belowcaptionskip}{4pt}",
            rf"  \caption{{{latex_text(table.caption)}}}",
            rf"  \label{{tab:{table.name}}}",
            rf"  {FITTED}\begin{{tabular}}{{@{{}}{''.join(columns)}@{{}}}}",
            r"    \toprule",
            "    " + " & ".join(map(latex_head, table.head, columns)) + r" \\",
            r"    \midrule",
            *(f"    {line}" for line in lines),
            r"    \bottomrule",
            r"  \end{tabular}}",
            r"\end{table}",
            "",
        )
    )


def latex_column(cells: Sequence[str]) -> str:
    if max(map(len, cells), default=0) > LONG:
        return r"p{0.3\linewidth}"
    return "r" if all(is_number(cell) or cell in ("-", "inf") for cell in cells) else "l"


def latex_head(text: str, column: str) -> str:
    """Return the head of a column in LaTeX, with one word per line so that it is hardly wider than the numbers."""
    parts = r" \\ ".join(map(latex_text, text.split()))
    return parts if " " not in text else rf"\begin{{tabular}}[b]{{@{{}}{column[0]}@{{}}}}{parts}\end{{tabular}}"


def latex_cell(text: str) -> str:
    mean, interval, half_width = text.partition(" ± ")
    if interval and is_number(mean) and is_number(half_width):
        return rf"${latex_number(mean)} \pm {latex_number(half_width)}$"
    if not is_number(text):
        return latex_text(text)
    return f"${latex_number(text)}$"


def latex_number(text: str) -> str:
    mantissa, _, power = text.partition("e")
    return mantissa if not power else rf"{mantissa}\times10^{{{int(power)}}}"


def html(table: Table) -> str:
    """Return a table in HTML without styles; text is escaped as Python's `html.escape` does it, not as Jinja does."""
    head, *lines = ([html_text(cell, LONGEST) for cell in line] for line in (table.head, *table.lines))
    heads = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    rows = [
        f'<tr><th scope="row">{row_name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for row_name, *cells in lines
    ]
    caption = f"<caption>{html_text(table.caption, CAPTION)}</caption>"
    return "\n".join(
        ("<table>", caption, f"<thead><tr>{heads}</tr></thead>", "<tbody>", *rows, "</tbody>", "</table>", "")
    )


FORMS = {"md": markdown, "tex": latex, "html": html}
"""The function that formats a table, by file extension."""
