"""Show a run in Python: as pandas DataFrames, or as HTML with inline styles, since notebooks drop style sheets.

pandas and Matplotlib are slow to import, so each function imports what it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_exp.errors import UserError, chosen, shown
from attn_exp.experiment.row import Agreement, Comparison, Distance, Row, Step, Timing
from attn_exp.report import figures
from attn_exp.report.escapes import brief, label, minus, plain
from attn_exp.report.pixels import FULL, INK, picture
from attn_exp.report.sections.comparison import table
from attn_exp.report.sentences import format_agreement, opening
from attn_exp.report.templating import templates
from attn_exp.report.views import Colours, Head, colours, heads_of, seen
from attn_exp.report.walk import label_rows_and_columns

if TYPE_CHECKING:
    import pandas as pd

MOST_CELLS = 12
"""Weights with more rows or columns than this are shown as a picture, not as a table."""

MOST_MAPS = 24


@dataclass(frozen=True)
class Drawing:
    """A figure that displays itself in a notebook; the attribute `figure` is a Matplotlib figure."""

    figure: Any

    def _repr_svg_(self) -> str:
        from attn_exp.report.charts.matplotlib_figure import encoded  # noqa: PLC0415 - slow to import

        return encoded(self.figure, "svg").decode()


def drawing(comparison: Comparison, name: str) -> Drawing:
    """Return one figure of the report.

    Raises:
        UserError: the run has no such figure.
    """
    views = seen(comparison)
    known = figures.wanted(views)
    drawn = figures.drawings(views, {name: known[chosen(name, known, "figure")]})
    return Drawing(drawn[name])


class Map(NamedTuple):
    """The weights of one head: rows of numbers with opacities, or the address of a picture if the matrix is large."""

    title: str
    columns: Sequence[str] = ()
    lines: Sequence[tuple[str, list[tuple[str, str]]]] = ()
    picture: str = ""
    ink: str = ",".join(map(str, INK))


def html(what: str, *args: Any) -> str:
    """Render the macro named `what` of `templates/notebook.html`."""
    environment = templates(autoescape=True)
    environment.filters["cut"] = lambda text, most=80: plain(str(text), most)
    return str(getattr(environment.get_template("notebook.html").module, what)(*args))


def run(comparison: Comparison, timings: Sequence[Timing]) -> str:
    shown = table(comparison, timings).at_depth(comparison.config.report.depth)
    same = ", ".join(f"{column.title} {minus(value)}" for column, value in shown.shared)
    said = [f"The same for all: {same}.", opening(comparison)]
    said += [format_agreement(comparison.published)] if comparison.published else []
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


def comparison(run: Comparison) -> pd.DataFrame:
    """Return one row per variant, indexed by its name; the columns are the fields of `Row`."""
    return frame(Row, run.rows).set_index("variant")


def distances(run: Comparison) -> pd.DataFrame:
    return frame(Distance, run.distances)


def steps(found: Sequence[Step]) -> pd.DataFrame:
    """Return one row per step of a ladder: the setting that it changes, and how much that changes the output."""
    return frame(Step, found)


def published(run: Comparison) -> pd.DataFrame:
    """Return one row per published result: whether the run agrees with it, and the largest difference."""
    return frame(Agreement, run.published)


def stage(run: Comparison, variant: str, name: str, head: object = 1) -> pd.DataFrame:
    """Return one stage of one variant labelled with tokens, such as the weights of its first head (`head=1`).

    Raises:
        UserError: there is no such variant or head, or the variant did not compute this stage.
    """
    formed = dict(run.traces[chosen(variant, run.traces, "variant")].stages())
    array = formed[chosen(name, formed, f"stage of {variant}")]
    heads = array if array.ndim == 3 else (array.T if name == "lse" else array)[None]
    if not isinstance(head, int | np.integer) or head not in range(1, len(heads) + 1):
        known = (
            "one head; choose 1" if len(heads) == 1 else f"{len(heads)} heads, counted from 1; choose 1 to {len(heads)}"
        )
        raise UserError(f"head={shown(head)}: {name} of {variant} has {known}")
    import pandas as pd  # noqa: PLC0415 - slow to import

    matrix = np.asarray(heads[int(head) - 1])
    rows, columns = label_rows_and_columns(name, run, matrix.shape, is_vector=False)
    return pd.DataFrame(matrix, index=list(rows), columns=list(columns))


def frame(schema: type, records: Sequence[Any]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - slow to import

    return pd.DataFrame([asdict(record) for record in records], columns=[field.name for field in fields(schema)])
