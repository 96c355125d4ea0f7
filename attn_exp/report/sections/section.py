"""The contract of a section of a run's report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from attn_exp.experiment.row import Run
from attn_exp.report.views import Shown, Views


class Material(NamedTuple):
    """The input of sections: a run, its views, the figures and its walks, each computed once."""

    run: Run
    views: Views
    figures: Sequence[Shown]
    walks: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Section:
    """One section of the report: a file next to this one has it as `SECTION`, and nothing else names it.

    `place`: its place among the others; the smallest comes first.
    `parts`: returns the data of the section, one mapping for each time it appears; empty if it has nothing to show.
        Each has an `anchor`, its address on the page, and a `title`, which the list at the top of the page links to it.
    `html`: its template for the page, where `part` is one of the parts; everything filled in is escaped. Macros of
        `templates/tables.html` draw tables, those of `matrices.html` coloured matrices. Without a template the section
        is not on the page.
    `markdown`: its template for report.md; the filter `md` escapes a text, and `piped` makes a table of lines.
    `place_in_markdown`: its place there, if different.
    """

    place: int
    parts: Callable[[Material], Sequence[Mapping[str, Any]]]
    html: str = ""
    markdown: str = ""
    place_in_markdown: int | None = None
