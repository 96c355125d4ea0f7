"""Notebook output of a run: HTML with inline styles, since notebooks drop style sheets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from attn_exp.errors import chosen
from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.row import Timing
from attn_exp.report import figures, sentences
from attn_exp.report.escapes import brief, label, minus, plain
from attn_exp.report.pixels import FULL, INK, picture
from attn_exp.report.sections.comparison import table
from attn_exp.report.sentences import agreed, who_agrees
from attn_exp.report.templating import templates
from attn_exp.report.views import Colours, Head, colours, heads_of, seen

MOST_CELLS = 12
"""Weights with more rows or columns than this are shown as a picture instead of a table."""

MOST_MAPS = 24


@dataclass(frozen=True)
class Drawing:
    """A figure that displays itself in a notebook; `figure` is Matplotlib's own."""

    figure: Any

    def _repr_svg_(self) -> str:
        from attn_exp.report.charts.matplotlib_figure import encoded  # noqa: PLC0415 - Matplotlib is slow to import

        return encoded(self.figure, "svg").decode()


def drawing(comparison: Comparison, name: str) -> Drawing:
    """Return one figure of the report.

    Raises:
        UserError: this run has no such figure.
    """
    views = seen(comparison)
    known = figures.wanted(views)
    drawn = figures.drawings(views, {name: known[chosen(name, known, "figure")]})
    return Drawing(drawn[name])


class Map(NamedTuple):
    """The weights of one head: rows of numbers with their opacities, or the address of a picture if they are large."""

    title: str
    columns: Sequence[str] = ()
    lines: Sequence[tuple[str, list[tuple[str, str]]]] = ()
    picture: str = ""
    ink: str = ",".join(map(str, INK))


def html(what: str, *args: Any) -> str:
    """Render a macro of `templates/notebook.html`, by its name."""
    environment = templates(autoescape=True)
    environment.filters["cut"] = lambda text, most=80: plain(str(text), most)
    return str(getattr(environment.get_template("notebook.html").module, what)(*args))


def run(comparison: Comparison, timings: Sequence[Timing]) -> str:
    shown = table(comparison, timings).at_depth(comparison.config.report.depth)
    same = ", ".join(f"{column.title} {minus(value)}" for column, value in shown.shared)
    said = [
        f"All with {same}.",
        who_agrees(comparison.rows, comparison.steps, comparison.config.against),
    ]
    said += filter(None, [sentences.describe_tokens(comparison.problem).queries])
    said += [agreed(comparison.published)] if comparison.published else []
    views = seen(comparison, 0)
    scale, heads = colours(views), [head for panel in views.panels for head in heads_of(panel)]
    maps = [map_of(head, comparison, scale) for head in heads[:MOST_MAPS]]
    return html("run", shown, said, maps, max(0, len(heads) - MOST_MAPS))


def map_of(head: Head, comparison: Comparison, scale: Colours) -> Map:
    matrix = head.weights
    if max(matrix.shape) > MOST_CELLS:
        return Map(head.title, picture=picture(matrix, scale.shares))
    cells = [
        [(brief(value), f"{FULL * share:.3f}") for value, share in zip(*row, strict=True)]
        for row in zip(matrix.tolist(), scale.shares(matrix).tolist(), strict=True)
    ]
    queries, keys = (list(map(label, names)) for names in (comparison.problem.tokens, comparison.problem.key_tokens))
    return Map(head.title, keys, list(zip(queries, cells, strict=True)))
