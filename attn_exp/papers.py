"""Tables for papers: the comparison and the published results as Markdown, LaTeX and HTML.

A number has as many digits as its error lets stand, four at most, and units stand in the head. Nothing in them depends
on the machine's speed, so equal comparisons give equal tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from attn_exp import columns
from attn_exp.compare import Comparison, Row
from attn_exp.markdown import piped
from attn_exp.terminal import plain, shown

COLUMNS = (
    "variant",
    "same_as",
    "head",
    "scale",
    "error",
    "shift",
    "cosine",
    "entropy",
    "effective_keys",
    "largest_weight",
)
EXACT = ("error", "row_sum_error")
"""Columns that are errors themselves: two digits say all that they know."""

LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
} | {each: f"\\{each}" for each in "&%$#_{}"}


@dataclass(frozen=True)
class Table:
    """A table in plain text: what it shows, its heads and its lines."""

    name: str
    caption: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def tables(comparison: Comparison) -> list[Table]:
    """Return the tables of a comparison."""
    rows = [row for row in comparison.rows if row.same_as]
    heads = [columns.HEADS[name] for name in COLUMNS]
    found = [
        Table(
            "comparison",
            "Variants of attention on one input; error against a scalar reference, shift against the first row.",
            tuple(f"{head.name} ({head.unit})" if head.unit else head.name for head in heads),
            tuple(tuple(cell(row, name) for name in COLUMNS) for row in rows),
        )
    ]
    if comparison.published:
        lines = (
            (each.quantity, two(each.largest_difference), two(each.tolerance), shown(each.agrees))
            for each in comparison.published
        )
        head = ("quantity", "largest difference", "tolerance", "agrees")
        found.append(Table("published", "Printed results, held against the computed ones.", head, tuple(lines)))
    return found


def cell(row: Row, name: str) -> str:
    value = getattr(row, name)
    if not isinstance(value, float):
        return shown(value)
    return two(value) if name in EXACT else significant(value, row.error)


def two(value: float) -> str:
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
    """Return a table in LaTeX; it needs the package booktabs."""
    lines = [" & ".join(latex_cell(each) for each in line) + r" \\" for line in (table.head, *table.lines)]
    return "\n".join(
        (
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{escaped(table.caption)}}}",
            rf"  \label{{tab:{table.name}}}",
            rf"  \begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}",
            r"    \toprule",
            f"    {lines[0]}",
            r"    \midrule",
            *(f"    {line}" for line in lines[1:]),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        )
    )


def latex_cell(text: str) -> str:
    """Return a cell in LaTeX: numbers as mathematics, powers of ten written out, the rest as text."""
    if not is_number(text):
        return escaped(text)
    mantissa, _, power = text.partition("e")
    return f"${mantissa}$" if not power else rf"${mantissa}\times10^{{{int(power)}}}$"


def escaped(text: str) -> str:
    """Return a text that LaTeX sets as it is, on one line."""
    return "".join(LATEX.get(each, each) for each in plain(text, most=200))


def is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def html(table: Table) -> str:
    """Return a table in HTML, without style."""
    return "\n".join(
        (
            "<table>",
            f"<caption>{escape(table.caption)}</caption>",
            f"<thead><tr>{''.join(html_head(each) for each in table.head)}</tr></thead>",
            "<tbody>",
            *(html_line(line) for line in table.lines),
            "</tbody>",
            "</table>",
            "",
        )
    )


def html_head(text: str) -> str:
    return f'<th scope="col">{escape(text)}</th>'


def html_line(line: Sequence[str]) -> str:
    first, *others = (escape(plain(each, most=200)) for each in line)
    cells = "".join(f"<td>{each}</td>" for each in others)
    return f'<tr><th scope="row">{first}</th>{cells}</tr>'


FORMS = {"md": markdown, "tex": latex, "html": html}
"""How a table is written, by the ending of its file."""
