"""The report of a run as Markdown, and what Markdown is made of: tables and code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attn_exp.report import walk, words
from attn_exp.report.escapes import md
from attn_exp.report.numbers import brief, decimal
from attn_exp.report.sentences import spoken
from attn_exp.report.templating import templates
from attn_exp.report.views import Shown
from attn_exp.report.walk import sum_written

if TYPE_CHECKING:
    from attn_exp.experiment.documents.agreement import Agreement
    from attn_exp.report.own import Pair

PUBLISHED = (
    words.QUANTITY, words.PRINTED, words.COMPUTED, words.LARGEST_DIFFERENCE, words.TOLERANCE, words.AGREES, words.NOTE,
)  # fmt: skip


def markdown(both: Mapping[str, Any], figures: Sequence[Shown] = ()) -> str:
    """Return the report as Markdown, of `contents`; the address of each figure is its path."""
    environment = templates(autoescape=False)
    environment.filters |= {"md": md, "fenced": fenced, "spoken": spoken, "shape": walk.shape}
    environment.filters |= {"code": code, "beside": beside}
    environment.filters |= {"markdown_table": table_of, "written": sum_written}
    comparison = both["comparison"].at_depth(both["depth"])
    heads = [head.title for head in comparison.head]
    text = environment.get_template("report.md").render(
        {**both, "comparison": comparison},
        figures=figures,
        comparison_table=piped(heads, comparison.lines),
        published_table=piped(PUBLISHED, [printed(agreement) for agreement in both["published"]]),
        check_tables=[piped(check["head"], check["lines"]) for check in both["checks"]],
    )
    return tidy(text)


def tidy(text: str) -> str:
    """Return a text with one empty line where a template leaves several."""
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def printed(agreement: Agreement) -> list[str]:
    """Return the cells of one published result."""
    judged = (agreement.largest_difference, agreement.tolerance, agreement.agrees)
    return [agreement.quantity, agreement.printed, agreement.computed, *map(brief, judged), agreement.note]


def table_of(table: walk.Table, step: walk.Step) -> str:
    """Return one table of a walk."""
    lines = [[decimal(value, step.decimals) for value in row] for row in table.matrix.tolist()]
    named = [[md(name), *line] for name, line in zip(table.rows, lines, strict=True)]  # numbers have nothing to escape
    return drawn([md(name) for name in ("", *table.columns)], named)


def piped(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, the first column to the left."""
    return drawn([md(cell) for cell in head], [[md(cell) for cell in line] for line in lines])


def drawn(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    rule = [":--", *("--:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def fenced(text: str) -> str:
    """Return a block of code; its fence is longer than any run of backticks in it."""
    fence = "`" * max(3, 1 + longest_run(text))
    return f"{fence}\n{text}\n{fence}"


def code(text: str) -> str:
    """Return code within a line, fenced by more backticks than it holds in a row."""
    fence = "`" * (1 + longest_run(text))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def longest_run(text: str) -> int:
    """Return how many backticks stand in a row at most."""
    return max((len(ticks) for ticks in re.findall("`+", text)), default=0)


def beside(pair: Pair) -> str:
    """Return the two sides of a pair as text, a row to a line."""
    sides = [[[cell for cell, _ in line] for line in lines] for lines in (pair.mine, pair.right) if lines]
    wide = max(len(cell) for lines in sides for line in lines for cell in line)
    texts = [["  ".join(cell.rjust(wide) for cell in line) for line in lines] for lines in sides]
    count = max(map(len, texts))
    room = max(map(len, texts[0]), default=0)
    padded = [[*lines, *[""] * (count - len(lines))] for lines in texts]
    return "\n".join(" | ".join([line[0].ljust(room), *line[1:]]).rstrip() for line in zip(*padded, strict=True))
