"""Two folders side by side as text, and as one page that needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attn_exp.experiment.column import spoken
from attn_exp.report.beside import Explorer
from attn_exp.report.page import FILTERS, SHARES
from attn_exp.report.papers import Table
from attn_exp.report.sections import weights
from attn_exp.report.templating import render_page
from attn_exp.report.terminal import table

MOST = 24
"""Lines of a table that a terminal shows."""


@dataclass(frozen=True)
class Versus:
    """Two folders side by side: sentences, the most important first, and the tables behind them.

    `moved` says whether any number is another beyond rounding, or is missing on one side; `depth` is what a reader is
    shown: that of both reports, all where they differ, or what was asked for. `explorer` shows the weights of two runs.
    """

    first: str
    second: str
    moved: bool
    sentences: tuple[str, ...]
    tables: tuple[Table, ...]
    depth: str = "all"
    explorer: Explorer | None = None

    @property
    def deep(self) -> bool:
        """Whether a line of a table is left out for reading."""
        return any(table.deep for table in self.tables)


def versus_text(versus: Versus) -> str:
    """Return what the terminal shows: the sentences, and the tables behind them."""
    parts = ["\n".join(versus.sentences)]
    for whole in versus.tables:
        shown = whole.at_depth(versus.depth)
        if not shown.lines:
            continue
        more = f"\n{MOST} of {len(shown.lines):,} lines" if len(shown.lines) > MOST else ""
        parts.append(f"{shown.caption}\n{table(shown.head, shown.lines[:MOST])}{more}")
    return "\n\n".join(parts)


def versus_page(versus: Versus) -> str:
    """Return the page."""
    shown = replace(versus, tables=tuple(map(with_spoken_columns, versus.tables)))
    js = [*(["maths.js", "report.js", "explore.js"] if versus.explorer else []), *(["depth.js"] if versus.deep else [])]
    return render_page(
        "versus.html",
        {"versus": shown, "depth": versus.depth, "data": versus.explorer and versus.explorer.data},
        ["report.css"],
        js,
        more_css=SHARES if versus.explorer else "",
        filters=FILTERS,
        more={"weights": weights.HTML},
    )


def with_spoken_columns(table: Table) -> Table:
    """Return a table with the columns of rows called as the page of a run has them, where files have underscores."""
    if table.name != "rows":
        return table
    return table._replace(lines=tuple((first, spoken(column), *rest) for first, column, *rest in table.lines))
