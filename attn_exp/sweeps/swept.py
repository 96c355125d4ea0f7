"""Make the table, answers and plots of a sweep from its parts, in Python and on disk, and show its status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from attn_exp import machine
from attn_exp.config.choices import as_yaml_value
from attn_exp.config.schema import Figures
from attn_exp.errors import UserError, chosen, refuse, some, unknown
from attn_exp.experiment.row import COLUMNS, Row
from attn_exp.report import papers
from attn_exp.report import sweep_plots as plots
from attn_exp.report.notebook import Drawing, html
from attn_exp.report.sweep_plots import Plotted, refuse_unknown
from attn_exp.runs import records, trust
from attn_exp.runs.execution import FIGURES, check_figures, parse_overrides
from attn_exp.runs.folders import COMPLETE
from attn_exp.sweeps import overview
from attn_exp.sweeps.effects import shorten
from attn_exp.sweeps.parts import Part, Shelf, locked
from attn_exp.sweeps.plan import Manifest, load_manifest, read_figures, row_columns, write_manifest
from attn_exp.sweeps.rows import VARIANT
from attn_exp.sweeps.summary import Summary, list_records, summarize

if TYPE_CHECKING:
    import pandas as pd

PARTIAL = "partial"
UNREADABLE = "its parts cannot be read"
ALWAYS = ("png", "svg")
"""Plot formats that are always written; `figures.format` adds others."""
USAGE = "attn-exp plot DIR x=SETTING y=METRIC [by=SETTING] [figures.format=pdf]"
READ: dict[str, Callable[[str], Any]] = {
    "Int64": int,
    "boolean": "true".__eq__,
    "string": str,
    "float64": float,
}
"""How the text of a cell is parsed, by pandas type; an empty cell is a missing value."""


def write_results(folder: Path, manifest: Manifest, parts: Mapping[str, Part]) -> tuple[str, int]:
    """Write the table, the report and the manifest from the existing parts; if some are missing, mark it as partial.

    Returns:
        The text for the terminal, and the number of points that disagree with a published result.
    """
    existing = {name: parts[name] for name in manifest["parts"] if name in parts}
    manifest = (
        {**manifest, "status": PARTIAL}
        if manifest["status"] == COMPLETE and len(existing) < len(manifest["parts"])
        else manifest
    )
    swept, table = Swept(folder, manifest, existing), folder / f"results.{manifest['format']}"
    is_parquet = manifest["format"] == "parquet"
    machine.write(
        table, encode_parquet(swept) if is_parquet else swept.shelf.join_parts(list(existing.values())), sync=True
    )
    summary = swept.summary
    text = f"{overview.format_terminal(manifest, summary)}\n\n{write_report(folder, manifest, summary)}"
    write_manifest(folder, {**manifest, "done": summary.points - summary.failed, "failed": summary.failed})
    return text, len(summary.disagreements)


def write_report(folder: Path, manifest: Manifest, summary: Summary) -> Path:
    wanted, depth = manifest["report"], overview.depth_of(manifest)
    plot_files: dict[str, bytes] = {}
    if wanted["tables"] and summary.answers.effects:
        write_answers(folder, manifest, summary)
    if wanted["figures"] and summary.cells:
        machine.own_folder(folder / "plots")
        formats = dict.fromkeys((*ALWAYS, *read_figures(manifest).format))
        plotted = overview.make_plot_data(manifest, summary, depth)
        for name, drawn in plots.draw(plotted).items():
            for ending in formats:
                file = f"{name}.{ending}"
                plot_files[file] = plots.encoded(drawn, ending, plotted)
                machine.write(folder / "plots" / file, plot_files[file])
    if not (wanted["tables"] or wanted["pages"]):
        return folder / f"results.{manifest['format']}"
    from attn_exp.report.documents import sweep_markdown, sweep_page  # noqa: PLC0415 - only reports need templates

    machine.write(
        folder / "report.md", sweep_markdown(overview.page_contents(manifest, summary, depth), list(plot_files))
    )
    if wanted["pages"]:
        contents = overview.page_contents(manifest, summary, "all")
        machine.write(
            folder / "report.html", sweep_page(contents, overview.explorer_data(manifest, summary), depth, plot_files)
        )
    return folder / ("report.html" if wanted["pages"] else "report.md")


def write_answers(folder: Path, manifest: Manifest, summary: Summary) -> None:
    for name, (head, lines) in list_records(summary.answers).items():
        cells = [["" if cell != cell else records.format_label(str(cell)) for cell in line] for line in lines]  # noqa: PLR0124 - tests for NaN
        machine.write(folder / f"{name}.csv", records.as_csv([head, *cells]))
    for table in overview.paper_tables(manifest, summary).values():
        for ending, format_as in papers.FORMS.items():
            machine.write(machine.own_folder(folder / "tables") / f"{table.name}.{ending}", format_as(table).encode())


def collect(words: Sequence[str]) -> str:
    """Rebuild the table and the report of a sweep: `attn-exp collect DIR`."""
    return collect_again(machine.folder(words[0]))


def collect_again(folder: Path, depth: str = "", figures: Mapping[str, Any] | None = None) -> str:
    """Rebuild a sweep's table and report from its parts, and return the text for the terminal.

    `depth` and `figures` override the settings in its manifest.

    Raises:
        UserError: the folder holds no sweep, the sweep is running, or the folder cannot be read or written to.
    """
    manifest = load_manifest(folder)
    if depth:
        report = manifest["report"] | {"depth": depth}
        manifest["report"] = report if report["tables"] or report["pages"] else report | {"tables": True, "pages": True}
    if figures:
        manifest["figures"] |= as_yaml_value(figures)
        manifest["report"] |= {"figures": True}
        check_plots(read_figures(manifest))
    unreadable = trust.refuse_damaged(f"{folder}: {UNREADABLE}", *trust.MISFIT)
    with refuse(f"{folder}: cannot be written to", OSError), locked(folder), unreadable:
        intact, damaged = Swept(folder, manifest).shelf.find(manifest["parts"])
        text, _ = write_results(folder, manifest, intact)
    return f"{text}\n\ndamaged and left out: {some(damaged)}" if damaged else text


def check_plots(figures: Figures) -> None:
    """Refuse unknown plots, and a font that is not installed.

    Raises:
        UserError: a plot is unknown, or the font is not installed.
    """
    refuse_unknown(figures.only)
    check_figures(replace(figures, only=()))


def show_status(words: Sequence[str]) -> str:
    """Report the status of a sweep: how many points are done and failed, and whether it is running.

    Raises:
        UserError: the folder holds no sweep.
    """
    folder = machine.folder(words[0])
    manifest = load_manifest(folder)
    chunk, points, parts = manifest["chunk"], manifest["points"], manifest["parts"]
    intact, damaged = Swept(folder, manifest).shelf.find(parts)
    done = sum(min(chunk, points - chunk * index) for index, name in enumerate(parts) if name in intact)
    failed = sum(part.failed for part in intact.values())
    count = f"{len(intact):,} of {len(parts):,} parts" + (f", {len(damaged):,} damaged" if damaged else "")
    status = manifest["status"]
    reason = {"running": "stopped before it finished", COMPLETE: "damaged after it finished"}.get(status, status)
    ended = f"{reason}; run the same command again to continue" if done < points else COMPLETE
    running = "running" if machine.is_locked(folder / "lock") else ended
    return "\n".join([manifest["command"], f"{done:,} of {points:,} points, {failed:,} failed; {count}", running])


def import_arrow() -> Any:
    """Import `pyarrow` with its Parquet writer, an optional dependency that is slow to import.

    Raises:
        UserError: `pyarrow` is not installed; a sweep that needs it checks this before it starts.
    """
    try:
        import pyarrow.parquet  # noqa: PLC0415 - see above
    except ImportError as error:
        raise UserError("sweep.format=parquet needs pyarrow; pip install 'attn-exp[parquet]'") from error
    return pyarrow


def column_types(manifest: Manifest) -> dict[str, Any]:
    """Return the pandas type of each column: the type of the row's field or of the axis's values, else string."""
    pandas_types = {"int": "Int64", "float": "float64", "bool": "boolean"}
    hints = get_type_hints(Row)
    types = dict.fromkeys(manifest["columns"], "string") | {"point": "Int64"}
    types |= {
        column: pandas_types.get(getattr(hints[field], "__name__", ""), "string")
        for field, column in row_columns().items()
    }
    types |= dict.fromkeys(manifest["metrics"], "float64")
    types |= {axis["column"]: pandas_types.get(axis["kind"], "string") for axis in manifest["axes"]}
    return types


def encode_parquet(swept: Swept) -> bytes:
    """Convert the table of a sweep to Parquet, one part at a time."""
    pyarrow, stream = import_arrow(), BytesIO()
    # a table without parts has no rows, but all columns and their types
    schema = pyarrow.Schema.from_pandas(replace(swept, known_parts={}).table, preserve_index=False)
    with pyarrow.parquet.ParquetWriter(stream, schema) as writer:
        for name, part in swept.parts.items():
            table = replace(swept, known_parts={name: part}).table
            writer.write_table(pyarrow.Table.from_pandas(table, schema, preserve_index=False))
    return stream.getvalue()


@dataclass(frozen=True)
class Swept:
    """The results of a sweep; a notebook displays its answers and the mean of every combination.

    - `folder`: where the sweep is stored.
    - `about`: the contents of its manifest.
    - `known_parts`: the intact parts to read, if they have been found already; None to look for them in the folder.
    """

    folder: Path
    about: Manifest
    known_parts: Mapping[str, Part] | None = None

    @property
    def shelf(self) -> Shelf:
        return Shelf(self.folder / "parts", [*self.about["columns"], "key"])

    @cached_property
    def parts(self) -> Mapping[str, Part]:
        return self.shelf.find(self.about["parts"])[0] if self.known_parts is None else self.known_parts

    def read_lines(self) -> tuple[Sequence[str], Iterator[list[str]]]:
        """Return the columns of the parts, and all their lines."""
        return self.shelf.head, map(records.parse_texts, self.shelf.cells(list(self.parts.values())))

    @cached_property
    def summary(self) -> Summary:
        """The mean of every combination, the extremes and the answers, computed once."""
        manifest = self.about
        with trust.refuse_damaged(f"{self.folder}: {UNREADABLE}", *trust.UNREADABLE):
            return summarize(
                *self.read_lines(),
                manifest["axes"],
                manifest["metrics"],
                manifest["dimensions"],
                manifest["sweep"].get("matters", {}),
                manifest.get("exact", False),
            )

    @property
    def table(self) -> pd.DataFrame:
        """One row per point and variant: the swept settings, the status, and the settings and metrics of the variant.

        Each column has a pandas type; `table.attrs["units"]` maps columns to their units.

        Raises:
            UserError: a part cannot be read.
        """
        import pandas as pd  # noqa: PLC0415 - slow to import

        columns = self.about["columns"]
        with trust.refuse_damaged(f"{self.folder}: {UNREADABLE}", *trust.UNREADABLE):
            head, lines = self.read_lines()
            frame: pd.DataFrame = pd.DataFrame(lines, columns=list(head), dtype=object)[columns]
            for name, dtype in column_types(self.about).items():
                frame[name] = pd.array([READ[dtype](text) if text else None for text in frame[name]], dtype=dtype)
        units = {column: COLUMNS[field].unit for field, column in row_columns().items()}
        frame.attrs["units"] = {column: unit for column, unit in units.items() if unit}
        return frame

    @property
    def effects(self) -> pd.DataFrame:
        """The paired effect of each setting on each metric, with all digits."""
        return make_frame(*list_records(self.summary.answers)["effects"])

    @property
    def shares(self) -> pd.DataFrame:
        """The share of each metric's variance that each setting, and each pair of settings, explains."""
        return make_frame(*list_records(self.summary.answers)["shares"])

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answers of the sweep, one sentence each."""
        return self.summary.answers.sentences

    def latex(self, name: str = "effects") -> str:
        """Return a table in LaTeX for a paper: `effects`, `shares` or `means`.

        Raises:
            UserError: there is no such table.
        """
        tables = overview.paper_tables(self.about, self.summary)
        return papers.latex(tables[chosen(name, tables, "table")])

    def figure(self, name: str = "effects") -> Drawing:
        """Return a plot that displays itself in a notebook; its `figure` is a Matplotlib figure.

        Raises:
            UserError: this sweep has no such plot.
        """
        plotted = overview.make_plot_data(self.about, self.summary, overview.depth_of(self.about))
        drawn = plots.draw(plotted)
        return Drawing(plots.figure(drawn[chosen(name, drawn, "plot")], plotted))

    def __repr__(self) -> str:
        return overview.format_terminal(self.about, self.summary)

    def _repr_html_(self) -> str:
        shown = overview.means_table(self.summary, overview.IN_TERMINAL, overview.depth_of(self.about))
        return html("sweep", self.sentences, shown.head, shown.lines, overview.format_closing(self.about, self.summary))


def make_frame(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - as above

    return pd.DataFrame(lines, columns=list(head))


def load(folder: Path) -> Swept:
    """Load the sweep in a folder.

    Raises:
        UserError: the folder holds no sweep that can be read.
    """
    return Swept(folder, load_manifest(folder))


def plot(words: Sequence[str]) -> str:
    """Draw one figure of a sweep, and return the paths of its files.

    Raises:
        UserError: the folder holds no sweep, or the sweep has no such setting or metric.
    """
    axes = {key: value for key, _, value in (word.partition("=") for word in words[1:]) if key in ("x", "y", "by")}
    if not {"x", "y"} <= set(axes):
        raise UserError(f"attn-exp plot {' '.join(words)}: expected {USAGE}")
    others = [word for word in words[1:] if word.partition("=")[0] not in axes]
    overrides = parse_overrides(others, "attn-exp plot", [key for key in FIGURES if key != "figures.only"])
    swept = load(machine.folder(words[0]))
    manifest = {**swept.about, "figures": {**swept.about["figures"], **overrides.figures}}
    metric = chosen(axes["y"], swept.summary.most, "metric in y")
    plotted = overview.make_plot_data(manifest, swept.summary, "all")
    axis_indices = [find_axis(plotted, key, axes[key]) for key in ("x", "by") if key in axes]
    chart = plots.draw_along(plotted, metric, axis_indices)
    name = "-".join(shorten(axes[key]) for key in ("y", "x", "by") if key in axes)
    paths = [
        machine.own_folder(swept.folder / "plots") / f"{name}.{ending}" for ending in read_figures(manifest).format
    ]
    for path in paths:
        machine.write(path, plots.encoded(chart, path.suffix[1:], plotted))
    return "\n".join(map(str, paths))


def find_axis(plotted: Plotted, key: str, name: str) -> int:
    """Return the index of a setting among the axes of the plots, where the variant is the last axis.

    Raises:
        UserError: the sweep has no such setting.
    """
    names = [*plotted.axes, VARIANT]
    matching = [index for index, axis in enumerate(names) if name in (axis, shorten(axis))]
    if len(matching) != 1:
        raise UserError(unknown(name, names, f"setting in {key}"))
    return matching[0]
