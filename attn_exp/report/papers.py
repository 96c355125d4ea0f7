"""Tables for papers: the comparison and the published results as Markdown, LaTeX and HTML.

A number has as many digits as its error lets stand, four at most, and units stand in the head. Nothing in them depends
on the machine's speed, so equal comparisons give equal tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.row import COLUMNS, Row, is_deep
from attn_exp.report.escapes import brief, is_number
from attn_exp.report.escapes import html as html_text
from attn_exp.report.escapes import latex as latex_text
from attn_exp.report.templating import piped

NAMES = [name for name, column in COLUMNS.items() if "paper" in column.shown]
LONGEST, CAPTION = 200, 2000
"""Characters that tables in HTML show of a cell, and of their caption."""

LONG = 40
"""Words of more characters than this are broken into lines in LaTeX."""

FITTED = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%" + "\n  "
"""A table that is wider than the text is made narrower."""

GRAPHICX = r"\usepackage{graphicx}"
BOOKTABS, FONTENC = r"\usepackage{booktabs}", r"\usepackage[T1]{fontenc}"


class Table(NamedTuple):
    """A table in plain text: what it shows, its heads and its lines; `deep` ones are left out for reading."""

    name: str
    caption: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    deep: frozenset[int] = frozenset()

    def at_depth(self, depth: str) -> Table:
        """Return what a reader of this depth is shown."""
        if depth == "all":
            return self
        lines = tuple(line for place, line in enumerate(self.lines) if place not in self.deep)
        return self._replace(lines=lines, deep=frozenset())


def deep_places(metrics: Iterable[str]) -> frozenset[int]:
    """Return the places of lines about a metric that is left out for reading."""
    return frozenset(place for place, metric in enumerate(metrics) if is_deep(metric))


def tables(comparison: Comparison) -> list[Table]:
    """Return the tables of a comparison."""
    rows = [row for row in comparison.rows if row.same_as]
    first = "the first row" if comparison.config.against is None else "the row that against= names"
    shown = [
        Table(
            "comparison",
            f"Variants of attention on one input; error against a scalar reference, shift against {first}.",
            tuple(COLUMNS[name].title for name in NAMES),
            tuple(tuple(cell(row, name) for name in NAMES) for row in rows),
        )
    ]
    if comparison.published:
        lines = (
            (result.quantity, two(result.largest_difference), two(result.tolerance), brief(result.agrees))
            for result in comparison.published
        )
        head = ("quantity", "largest difference", "tolerance", "agrees")
        shown.append(Table("published", "Printed results, held against the computed ones.", head, tuple(lines)))
    return shown


def cell(row: Row, name: str) -> str:
    """Return a number of a row with as many digits as its error leaves right, and any other value as it is."""
    value = getattr(row, name)
    if not isinstance(value, float):
        return brief(value)
    return two(value) if COLUMNS[name].exact else significant(value, row.error)


def two(value: float) -> str:
    """Return a number with two digits."""
    return significant(value, 0.1 * abs(value), most=2)


def significant(value: float, error: float, most: int = 4) -> str:
    """Write a value with the digits that its error lets stand, at most `most`; 0 where the error is as large.

    The last digit is the first that the error touches. Source: JCGM 100:2008, section 7.2.6.
    """
    if not math.isfinite(value):
        return "-"
    if value == 0 or abs(value) <= error:
        return "0"
    digits = most
    if error > 0:
        digits = min(most, 1 + math.floor(math.log10(abs(value))) - math.floor(math.log10(error)))
    text = f"{value:#.{max(1, digits)}g}"
    mantissa, e, power = text.partition("e")
    return f"{mantissa.rstrip('.')}{e}{power}"


def markdown(table: Table) -> str:
    """Return a table in Markdown, its caption above."""
    return f"{table.caption}\n\n{piped(table.head, table.lines)}\n"


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
    """Return how a column stands: numbers at the right, words at the left, long ones broken into lines."""
    if max(map(len, cells), default=0) > LONG:
        return r"p{0.3\linewidth}"
    return "r" if all(is_number(cell) or cell in ("-", "inf") for cell in cells) else "l"


def latex_head(text: str, column: str) -> str:
    """Return the head of a column, a word to a line, so that it is hardly wider than its numbers."""
    parts = r" \\ ".join(map(latex_text, text.split()))
    return parts if " " not in text else rf"\begin{{tabular}}[b]{{@{{}}{column[0]}@{{}}}}{parts}\end{{tabular}}"


def latex_cell(text: str) -> str:
    """Return a cell in LaTeX: numbers as mathematics, powers of ten written out, the rest as text."""
    mean, interval, half = text.partition(" ± ")
    if interval and is_number(mean) and is_number(half):
        return rf"${mathematics(mean)} \pm {mathematics(half)}$"
    if not is_number(text):
        return latex_text(text)
    return f"${mathematics(text)}$"


def mathematics(text: str) -> str:
    """Return a number in LaTeX's mathematics, powers of ten written out."""
    mantissa, _, power = text.partition("e")
    return mantissa if not power else rf"{mantissa}\times10^{{{int(power)}}}"


def html(table: Table) -> str:
    """Return a table in HTML, without style; `html.escape` and not Jinja says what an apostrophe is in such a file."""
    head, *lines = ([html_text(cell, LONGEST) for cell in line] for line in (table.head, *table.lines))
    heads = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    rows = [
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>'
        for first, *others in lines
    ]
    caption = f"<caption>{html_text(table.caption, CAPTION)}</caption>"
    return "\n".join(
        ("<table>", caption, f"<thead><tr>{heads}</tr></thead>", "<tbody>", *rows, "</tbody>", "</table>", "")
    )


FORMS = {"md": markdown, "tex": latex, "html": html}
"""How a table is written, by the ending of its file."""
