"""The interface of a section in a run's report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from attn_exp.experiment.row import Run
from attn_exp.report.views import Shown, Views


class Material(NamedTuple):
    """The input of all sections: a run, its views, its figures and its walks, each computed once.

    A walk is a mapping that `sections/walks.py` makes. It has the steps from the input to the output of a variant, and
    what a page shows about them.
    """

    run: Run
    views: Views
    figures: Sequence[Shown]
    walks: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Section:
    """One section of the report, which a file next to this one defines as `SECTION`; no other file names it.

    `place`: sorts the sections; the smallest comes first.
    `parts`: returns one mapping for each time that the section appears, with the data to show; none if there is nothing
        to show. Each mapping has an `anchor`, its address on the page, and a `title` for the links at the top.
    `html`: the template for the page, in which `part` is one of the parts. Everything filled in is escaped. The macros
        in `templates/tables.html` draw tables, and those in `matrices.html` coloured matrices. Without a template, the
        section is not on the page.
    `markdown`: the template for report.md; the filter `md` escapes a string, and `piped` makes a table of lines.
    `place_in_markdown`: sorts the sections in report.md, if their order there is different.
    """

    place: int
    parts: Callable[[Material], Sequence[Mapping[str, Any]]]
    html: str = ""
    markdown: str = ""
    place_in_markdown: int | None = None
