"""Tables for papers: the comparison and the published results as Markdown, LaTeX and HTML.

A number has as many digits as its error lets stand, four at most, and units stand in the head. Nothing in them depends
on the machine's speed, so equal comparisons give equal tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.row import COLUMNS, Row
from attn_exp.report.markdown import piped
from attn_exp.report.terminal import plain, shown

NAMES = [name for name, column in COLUMNS.items() if "paper" in column.shown]
NUMBER = re.compile(r"-?[0-9.]+(e[+-]?[0-9]+)?")
LONG = 40
"""Words of more characters than this are broken into lines in LaTeX."""

LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",
    "*": "{*}",
} | {each: f"\\{each}" for each in "&%$#_{}"}
"""What LaTeX would obey; `[` and `*` are so only where a line of a table begins."""

EVERY_LATEX = re.compile(r"[ -~À-ÿ·±µ°–—‘’“”…]+")
"""Text that pdfLaTeX sets with its usual fonts, as the engines that know all of Unicode do."""


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
    found = [
        Table(
            "comparison",
            "Variants of attention on one input; error against a scalar reference, shift against the first row.",
            tuple(COLUMNS[name].title for name in NAMES),
            tuple(tuple(cell(row, name) for name in NAMES) for row in rows),
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
    return two(value) if COLUMNS[name].exact else significant(value, row.error)


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
    lines = [" & ".join(latex_cell(each) for each in line) + r" \\" for line in table.lines]
    columns = [latex_column(column[1:]) for column in zip(table.head, *table.lines, strict=True)]
    return "\n".join(
        (
            r"% \usepackage{booktabs} and, for pdfLaTeX, \usepackage[T1]{fontenc}",
            r"\begin{table}",
            r"  \centering",
            r"  \footnotesize",
            r"  \setlength{\tabcolsep}{3pt}",
            r"  \setlength{\belowcaptionskip}{4pt}",
            rf"  \caption{{{escaped(table.caption)}}}",
            rf"  \label{{tab:{table.name}}}",
            rf"  \begin{{tabular}}{{@{{}}{''.join(columns)}@{{}}}}",
            r"    \toprule",
            "    " + " & ".join(map(latex_head, table.head, columns)) + r" \\",
            r"    \midrule",
            *(f"    {line}" for line in lines),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        )
    )


def latex_column(cells: Sequence[str]) -> str:
    """Return how a column stands: numbers at the right, words at the left, long ones broken into lines."""
    if max(map(len, cells), default=0) > LONG:
        return r"p{0.4\linewidth}"
    return "r" if all(is_number(each) or each in ("-", "inf") for each in cells) else "l"


def latex_head(text: str, column: str) -> str:
    """Return the head of a column, a word to a line, so that it is hardly wider than its numbers."""
    words = r" \\ ".join(map(escaped, text.split()))
    return words if " " not in text else rf"\begin{{tabular}}[b]{{@{{}}{column[0]}@{{}}}}{words}\end{{tabular}}"


def latex_cell(text: str) -> str:
    """Return a cell in LaTeX: numbers as mathematics, powers of ten written out, the rest as text."""
    if not is_number(text):
        return escaped(text)
    mantissa, _, power = text.partition("e")
    return f"${mantissa}$" if not power else rf"${mantissa}\times10^{{{int(power)}}}$"


def escaped(text: str) -> str:
    """Return a text that LaTeX sets as it is, on one line.

    Characters that pdfLaTeX's fonts lack stand there by their numbers; LuaLaTeX and XeLaTeX set them.
    """
    return "".join(
        letters(piece) if EVERY_LATEX.fullmatch(piece) else other_letters(piece)
        for piece in re.split(f"({EVERY_LATEX.pattern})", plain(text, most=200))
        if piece
    )


def letters(text: str) -> str:
    """Escape letters, and keep two hyphens, commas or apostrophes from becoming one sign."""
    return re.sub(r"([-,'])(?=\1)", r"\1{}", "".join(LATEX.get(each, each) for each in text))


def other_letters(text: str) -> str:
    numbers = " ".join(f"U+{ord(each):04X}" for each in text)
    return rf"\ifdefined\Umathchar {text}\else {numbers}\fi{{}}"


def is_number(text: str) -> bool:
    return NUMBER.fullmatch(text) is not None


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
