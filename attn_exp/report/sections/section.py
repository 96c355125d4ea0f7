"""What a section of the report of a run is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from attn_exp.experiment.comparison import Run
from attn_exp.report.views import Shown, Views


class Material(NamedTuple):
    """What sections are made of: a run, its views, the figures beside it, and its walks, made once."""

    run: Run
    views: Views
    figures: Sequence[Shown]
    walks: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Section:
    """One section of the report: a file beside this one has it as `SECTION`, and nothing else names it.

    `place`: where it stands among the others; the smallest comes first.
    `parts`: returns what it says of a run, a mapping each time it stands there; nothing where it has nothing to say.
        Each has an `anchor`, its address on the page, and a `title`, by which the list at the top leads to it.
    `html`: its template for the page, where `part` is one of the parts; all that it fills in is escaped. Macros of
        `templates/tables.html` draw tables, those of `matrices.html` coloured matrices. Without a template the section
        is not on the page.
    `markdown`: its template for report.md; the filter `md` escapes a text, and `piped` makes a table of lines.
    `place_in_markdown`: where it stands there, if elsewhere.
    """

    place: int
    parts: Callable[[Material], Sequence[Mapping[str, Any]]]
    html: str = ""
    markdown: str = ""
    place_in_markdown: int | None = None
