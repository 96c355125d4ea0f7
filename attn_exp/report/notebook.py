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
from attn_exp.report.pixels import FULL, INK, picture_url
from attn_exp.report.sections.comparison import make_table
from attn_exp.report.sentences import format_agreement, opening
from attn_exp.report.templating import templates
from attn_exp.report.views import Colours, Head, colours, heads_of, make_views
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
        from attn_exp.report.charts.matplotlib_figure import encode_figure  # noqa: PLC0415 - slow to import

        return encode_figure(self.figure, "svg").decode()


def drawing(comparison: Comparison, name: str) -> Drawing:
    """Return one figure of the report.

    Raises:
        UserError: the run has no such figure.
    """
    views = make_views(comparison)
    members = figures.choose_figures(views)
    drawings = figures.draw_figures(views, {name: members[chosen(name, members, "figure")]})
    return Drawing(drawings[name])


class Map(NamedTuple):
    """The weights of one head, as a table or, if the matrix is large, as a picture.

    `columns`: the labels of the keys.
    `lines`: for each query its label, and for each key the number and the opacity of its colour.
    `picture`: the address of the picture.
    `ink`: the colour of all cells: red, green and blue.
    """

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
    comparison_table = make_table(comparison, timings).at_depth(comparison.config.report.depth)
    shared = ", ".join(f"{column.title} {minus(value)}" for column, value in comparison_table.shared)
    paragraphs = [f"The same for all: {shared}.", opening(comparison)]
    paragraphs += [format_agreement(comparison.published)] if comparison.published else []
    views = make_views(comparison, 0)  # 0: without the scores from which the weights are computed
    scale, heads = colours(views), [head for panel in views.panels for head in heads_of(panel)]
    maps = [make_map(head, comparison, scale) for head in heads[:MOST_MAPS]]
    return html("run", comparison_table, paragraphs, maps, max(0, len(heads) - MOST_MAPS))


def make_map(head: Head, comparison: Comparison, scale: Colours) -> Map:
    matrix = head.weights
    if max(matrix.shape) > MOST_CELLS:
        return Map(head.title, picture=picture_url(matrix, scale.shares))
    cells = [
        [(brief(value), f"{FULL * share:.3f}") for value, share in zip(*row, strict=True)]
        for row in zip(matrix.tolist(), scale.shares(matrix).tolist(), strict=True)
    ]
    queries, keys = (list(map(label, names)) for names in (comparison.problem.tokens, comparison.problem.key_tokens))
    return Map(head.title, keys, list(zip(queries, cells, strict=True)))


def comparison(run: Comparison) -> pd.DataFrame:
    """Return one row per variant, indexed by its name; the columns are the fields of `Row`."""
    return make_frame(Row, run.rows).set_index("variant")


def distances(run: Comparison) -> pd.DataFrame:
    return make_frame(Distance, run.distances)


def steps(found: Sequence[Step]) -> pd.DataFrame:
    """Return one row per step of a ladder: the setting that changes, and how much that changes the output."""
    return make_frame(Step, found)


def published(run: Comparison) -> pd.DataFrame:
    """Return one row per published result: whether the run agrees with it, and the largest difference."""
    return make_frame(Agreement, run.published)


def stage(run: Comparison, variant: str, name: str, head: object = 1) -> pd.DataFrame:
    """Return one stage of one head of a variant, labelled with tokens, such as the weights of its first head.

    Raises:
        UserError: there is no such variant or head, or the variant did not compute this stage.
    """
    stages = dict(run.traces[chosen(variant, run.traces, "variant")].stages())
    array = stages[chosen(name, stages, f"stage of {variant}")]
    heads = array if array.ndim == 3 else (array.T if name == "lse" else array)[None]
    if not isinstance(head, int | np.integer) or head not in range(1, len(heads) + 1):
        choices = (
            "one head; choose 1" if len(heads) == 1 else f"{len(heads)} heads, counted from 1; choose 1 to {len(heads)}"
        )
        raise UserError(f"head={shown(head)}: {name} of {variant} has {choices}")
    import pandas as pd  # noqa: PLC0415 - slow to import

    matrix = np.asarray(heads[int(head) - 1])
    rows, columns = label_rows_and_columns(name, run, matrix.shape, is_vector=False)
    return pd.DataFrame(matrix, index=list(rows), columns=list(columns))


def make_frame(schema: type, records: Sequence[Any]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - slow to import

    return pd.DataFrame([asdict(record) for record in records], columns=[field.name for field in fields(schema)])
