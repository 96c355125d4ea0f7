"""A sweep from Python: its table as a DataFrame, its answers and its plots; and `attn-exp plot`, one figure of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attn_exp import machine
from attn_exp.errors import UserError, chosen, unknown
from attn_exp.experiment.row import COLUMNS, Row
from attn_exp.report import papers
from attn_exp.report import sweep_plots as plots
from attn_exp.report.notebook import Drawing, html
from attn_exp.report.sweep_plots import Plotted
from attn_exp.runs.rendering import FIGURES, said_anew
from attn_exp.sweeps import collect, manifest, overview
from attn_exp.sweeps.effects import shorten
from attn_exp.sweeps.effects_table import list_records
from attn_exp.sweeps.manifest import About
from attn_exp.sweeps.rows import VARIANT
from attn_exp.sweeps.summary import Summary
from attn_exp.sweeps.sweep import sweep
from attn_exp.sweeps.task import row_columns

if TYPE_CHECKING:
    import pandas as pd

USAGE = "attn-exp plot DIR x=SETTING y=METRIC [by=SETTING] [figures.format=pdf]"

TYPES: dict[str, tuple[Any, Callable[[str], Any]]] = {
    "int64": ("Int64", int), "bool": ("boolean", "true".__eq__), "string": ("string", str), "double": ("float64", float)
}  # fmt: skip
"""Types of pandas, nullable ones but for numbers, and how a text is read, by the kind of a column."""


@dataclass(frozen=True)
class Swept:
    """The results of a sweep. A notebook shows its answers and the means of every combination.

    `folder` is its location, `about` the contents of its manifest.
    """

    folder: Path
    about: About

    @cached_property
    def summary(self) -> Summary:
        """The means of every combination, the extremes and the answers, computed once."""
        with collect.refuse_damaged(self.folder, OSError):
            return collect.summarize_parts(self.folder, self.about)

    @property
    def table(self) -> pd.DataFrame:
        """A row per point and variant: the swept settings, the status, and the row's settings and numbers.

        Columns have their types, and `table.attrs["units"]` the units of those that have one.

        Raises:
            UserError: parts that cannot be read.
        """
        import pandas as pd  # noqa: PLC0415 - slow to import

        columns = self.about["columns"]
        with collect.refuse_damaged(self.folder, OSError):
            head, lines = collect.read_lines(self.folder, self.about)
            frame: pd.DataFrame = pd.DataFrame(lines, columns=list(head), dtype=object)[columns]
            for name, kind in collect.column_kinds(columns, self.about["axes"], self.about["metrics"]).items():
                dtype, read = TYPES[kind]
                frame[name] = pd.array([read(text) if text else None for text in frame[name]], dtype=dtype)
        named = zip(row_columns(), (field.name for field in fields(Row)), strict=True)
        units = {name: COLUMNS[field].unit for name, field in named if name in frame}
        frame.attrs["units"] = {name: unit for name, unit in units.items() if unit}
        return frame

    @property
    def effects(self) -> pd.DataFrame:
        """The paired effect of each setting on each metric, in full digits."""
        return frame_of(*list_records(self.summary.answers)["effects"])

    @property
    def shares(self) -> pd.DataFrame:
        """The share of each metric's variance that each setting, and each pair of settings, explains."""
        return frame_of(*list_records(self.summary.answers)["shares"])

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answers of the sweep, a sentence each."""
        return self.summary.answers.sentences

    def latex(self, name: str = "effects") -> str:
        """Return a table in LaTeX for a paper: `effects`, `shares` or `means`.

        Raises:
            UserError: there is no such table.
        """
        tables = overview.paper_tables(self.about, self.summary)
        return papers.latex(tables[chosen(name, tables, "table")])

    def figure(self, name: str = "effects") -> Drawing:
        """Return a plot, which shows itself in a notebook; its `figure` is Matplotlib's own.

        Raises:
            UserError: this sweep has no such plot.
        """
        plotted = overview.plotted(self.about, self.summary, overview.depth_of(self.about))
        drawn = plots.draw(plotted)
        return Drawing(plots.figure(drawn[chosen(name, drawn, "plot")], plotted))

    def __repr__(self) -> str:
        return overview.terminal(self.about, self.summary)

    def _repr_html_(self) -> str:
        shown = overview.table(self.summary, overview.IN_TERMINAL, overview.depth_of(self.about))
        return html("sweep", self.sentences, shown.head, shown.lines, overview.closing(self.about, self.summary))


def frame_of(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - as above

    return pd.DataFrame(lines, columns=list(head))


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


def plot(words: Sequence[str]) -> str:
    """Draw one figure of a sweep, and return the paths of its files.

    Raises:
        UserError: no sweep there, or a setting or a metric that it does not have.
    """
    drawn = {key: value for key, _, value in (word.partition("=") for word in words[1:]) if key in ("x", "y", "by")}
    if not {"x", "y"} <= set(drawn):
        raise UserError(f"attn-exp plot {' '.join(words)}: expected {USAGE}")
    others = [word for word in words[1:] if word.partition("=")[0] not in drawn]
    anew = said_anew(others, "attn-exp plot", [key for key in FIGURES if key != "figures.only"])
    swept = load(machine.folder(words[0]))
    about = {**swept.about, "figures": {**swept.about["figures"], **anew.figures}}
    metric = chosen(drawn["y"], swept.summary.most, "metric in y")
    plotted = overview.plotted(about, swept.summary, "all")
    places = [find_place(plotted, key, drawn[key]) for key in ("x", "by") if key in drawn]
    chart = plots.draw_along(plotted, metric, places)
    name = "-".join(shorten(drawn[key]) for key in ("y", "x", "by") if key in drawn)
    paths = [machine.own_folder(swept.folder / "plots") / f"{name}.{form}" for form in manifest.figures(about).format]
    for path in paths:
        machine.write(path, plots.encoded(chart, path.suffix[1:], plotted))
    return "\n".join(map(str, paths))


def find_place(plotted: Plotted, key: str, name: str) -> int:
    """Return the index of a setting, or of the variant, which comes last.

    Raises:
        UserError: the sweep has no such setting.
    """
    names = [*plotted.axes, VARIANT]
    known = [place for place, axis in enumerate(names) if name in (axis, shorten(axis))]
    if len(known) != 1:
        raise UserError(unknown(name, names, f"setting in {key}"))
    return known[0]
