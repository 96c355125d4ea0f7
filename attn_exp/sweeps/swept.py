"""A sweep from Python: its table as a DataFrame, its answers and its plots; loaded from a folder, or computed now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_exp.errors import UserError, unknown
from attn_exp.experiment.row import COLUMNS, Row
from attn_exp.report import papers
from attn_exp.report.notebook import Drawing, html
from attn_exp.sweeps import collect, manifest, overview
from attn_exp.sweeps.answers.answers import EFFECT, SHARE, effect_records, effects_table, share_records, shares_table
from attn_exp.sweeps.answers.totals import Summary
from attn_exp.sweeps.parquet import kinds
from attn_exp.sweeps.sweep import sweep
from attn_exp.sweeps.task import row_columns

if TYPE_CHECKING:
    import pandas as pd

TYPES: dict[str, Any] = {"int64": "Int64", "bool": "boolean", "string": "string"}
"""Nullable types of pandas, by the kind of a column."""


@dataclass(frozen=True)
class Swept:
    """The results of a sweep. A notebook shows its answers and the means of every combination.

    `folder` is its location, `about` the contents of its manifest.
    """

    folder: Path
    about: Mapping[str, Any]

    @cached_property
    def summary(self) -> Summary:
        """The means of every combination, the extremes and the answers, computed once."""
        with collect.refuse_damaged(self.folder, OSError):
            return collect.summarize_parts(self.folder, self.about, collect.find_whole(self.folder, self.about))

    @property
    def table(self) -> pd.DataFrame:
        """A row per point and variant: the swept settings, the status, and the row's settings and numbers.

        Columns have their types, and `table.attrs["units"]` the units of those that have one.

        Raises:
            UserError: parts that cannot be read.
        """
        with collect.refuse_damaged(self.folder, OSError):
            return self.frame()

    def frame(self) -> pd.DataFrame:
        """Return the table; damaged parts raise a ValueError."""
        import pandas as pd  # noqa: PLC0415 - slow to import

        parts, columns = collect.find_whole(self.folder, self.about), self.about["columns"]
        lines = collect.shelf_of(self.folder, self.about).lines(list(parts.values()))
        cells = list(zip(*(line[: len(columns)] for line in lines), strict=True)) or [()] * len(columns)
        types = kinds(columns, self.about["axes"], self.about["metrics"])
        held = {name: (read_cells(texts, types[name]), types[name]) for name, texts in zip(columns, cells, strict=True)}
        frame = pd.DataFrame(
            {
                name: pd.array(values, dtype=TYPES[kind]) if kind in TYPES else np.array(values)
                for name, (values, kind) in held.items()
            }
        )
        named = zip(row_columns(), (field.name for field in fields(Row)), strict=True)
        units = {name: COLUMNS[field].unit for name, field in named if name in frame}
        frame.attrs["units"] = {name: unit for name, unit in units.items() if unit}
        return frame

    @property
    def effects(self) -> pd.DataFrame:
        """The paired effect of each setting on each metric of each variant, in full digits."""
        return frame_of(effect_records(self.summary.answers), EFFECT)

    @property
    def shares(self) -> pd.DataFrame:
        """The share of each metric's variance that each setting, and each pair of settings, explains."""
        return frame_of(share_records(self.summary.answers), SHARE)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answers of the sweep, a sentence each."""
        return self.summary.answers.sentences

    def latex(self, name: str = "effects") -> str:
        """Return a table in LaTeX for a paper: `effects`, `shares` or `means`.

        Raises:
            UserError: there is no such table.
        """
        return papers.latex(self.paper(name))

    def paper(self, name: str) -> papers.Table:
        """Return a table for papers.

        Raises:
            UserError: there is no such table.
        """
        made = {
            "effects": lambda: effects_table(self.summary.answers),
            "shares": lambda: shares_table(self.summary.answers),
            "means": lambda: overview.means_table(self.about, self.summary, overview.depth_of(self.about)),
        }
        if name not in made:
            raise UserError(unknown(name, list(made), "table"))
        return made[name]()

    def figure(self, name: str = "effects") -> Drawing:
        """Return a plot, which shows itself in a notebook; its `figure` is Matplotlib's own.

        Raises:
            UserError: this sweep has no such plot.
        """
        from attn_exp.report.sweep import plots  # noqa: PLC0415 - Matplotlib is slow to import

        drawn = plots.draw(overview.plotted(self.about, self.summary, overview.depth_of(self.about)))
        if name not in drawn:
            raise UserError(unknown(name, list(drawn), "plot"))
        return Drawing(drawn[name])

    def __repr__(self) -> str:
        return overview.terminal(self.about, self.summary)

    def _repr_html_(self) -> str:
        shown = overview.table(self.about, self.summary, overview.IN_TERMINAL, overview.depth_of(self.about))
        lines = [[*line.settings, line.variant, str(line.count), *line.numbers] for line in shown.lines]
        return html("sweep", self.sentences, shown.titles, lines, overview.closing(self.about, self.summary))


def read_cells(texts: Sequence[str], kind: str) -> list[Any]:
    """Parse the cells of a column, with None or NaN for empty ones."""
    if kind == "double":  # Python reads every digit that was written
        return [float(text) if text else np.nan for text in texts]
    read: dict[str, Callable[[str], Any]] = {"int64": int, "bool": lambda text: text == "true", "string": str}
    return [read[kind](text) if text else None for text in texts]


def frame_of(lines: Sequence[Sequence[Any]], columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - slow to import

    return pd.DataFrame(lines, columns=list(columns))


def compute(words: Sequence[str], folders: Sequence[str]) -> Swept:
    """Run the sweep that the words of `-m` describe, and return its results.

    Raises:
        UserError: as `sweep`; a folder that cannot be written to; or a sweep that only shows its plan.
    """
    outcome = sweep(words, folders)
    if not outcome.kept:
        dry = "sweep.dry_run=true computes nothing; python -m attn_exp -m prints its plan"
        raise UserError(dry if outcome.text else f"{outcome.folder}: cannot be written to")
    return load(outcome.folder)


def load(folder: Path) -> Swept:
    """Load the sweep in a folder.

    Raises:
        UserError: no sweep there that can be read.
    """
    return Swept(folder, manifest.load_manifest(folder))
