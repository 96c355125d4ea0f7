"""The report of a run as Markdown, and what Markdown is made of: tables and code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attn_exp.report import walk
from attn_exp.report.escapes import md
from attn_exp.report.numbers import decimal
from attn_exp.report.sections import contents, templates_of
from attn_exp.report.sections.section import Material
from attn_exp.report.sentences import spoken
from attn_exp.report.templating import templates

if TYPE_CHECKING:
    from attn_exp.report.sections.own import Pair


def markdown(material: Material) -> str:
    """Return the report as Markdown; the address of each figure is its path."""
    texts = templates_of("markdown")
    environment = templates(autoescape=False, more=texts)
    environment.filters |= {"md": md, "fenced": fenced, "spoken": spoken, "shape": walk.shape}
    environment.filters |= {"code": code, "beside": beside, "piped": lambda lines, head: piped(head, lines)}
    environment.filters |= {"markdown_table": table_of}
    return tidy(environment.get_template("report.md").render(contents(material, texts)))


def tidy(text: str) -> str:
    """Return a text with one empty line where a template leaves several."""
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


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
    sides = [lines for lines in (pair.mine, pair.right) if lines]
    wide = max(len(cell) for lines in sides for line in lines for cell in line)
    texts = [["  ".join(cell.rjust(wide) for cell in line) for line in lines] for lines in sides]
    count = max(map(len, texts))
    room = max(map(len, texts[0]), default=0)
    padded = [[*lines, *[""] * (count - len(lines))] for lines in texts]
    return "\n".join(" | ".join([line[0].ljust(room), *line[1:]]).rstrip() for line in zip(*padded, strict=True))
