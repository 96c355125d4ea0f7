"""Build a sweep's table and report from its parts, and report its status, also from another terminal or machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from io import BytesIO
from pathlib import Path
from typing import Any, get_type_hints

from attn_exp import machine
from attn_exp.config.choices import as_yaml_value
from attn_exp.config.schema import Figures
from attn_exp.errors import UserError, first_line
from attn_exp.experiment.row import Row
from attn_exp.report import papers
from attn_exp.report import sweep_plots as plots
from attn_exp.report.sweep_plots import refuse_unknown
from attn_exp.runs import records, trust
from attn_exp.runs.folders import COMPLETE
from attn_exp.runs.rendering import check_figures
from attn_exp.sweeps import manifest, overview
from attn_exp.sweeps.effects_table import list_records
from attn_exp.sweeps.manifest import About
from attn_exp.sweeps.parts import Part, Shelf, describe, locked
from attn_exp.sweeps.rows import Axes
from attn_exp.sweeps.summary import Summary, summarized
from attn_exp.sweeps.task import row_columns

PARTIAL = "partial"
ALWAYS = ("png", "svg")
"""Plot formats that are always written; `figures.format` adds others."""


def shelf_of(folder: Path, about: About) -> Shelf:
    return Shelf(folder / "parts", [*about["columns"], "key"])


def find_whole(folder: Path, about: About) -> dict[str, Part]:
    return shelf_of(folder, about).find(about["parts"])[0]


def read_lines(
    folder: Path, about: About, parts: Mapping[str, Part] | None = None
) -> tuple[Sequence[str], Iterator[list[str]]]:
    shelf = shelf_of(folder, about)
    return shelf.head, shelf.lines(list((find_whole(folder, about) if parts is None else parts).values()))


def summarize_parts(folder: Path, about: About, parts: Mapping[str, Part] | None = None) -> Summary:
    head, lines = read_lines(folder, about, parts)
    matters, is_exact = manifest.thresholds(about), about.get("exact", False)
    return summarized(head, lines, about["axes"], about["metrics"], about["dimensions"], matters, is_exact)


@contextmanager
def refuse_damaged(place: Path | str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn a ValueError in the block, or an error of `kinds`, into one line saying that the parts cannot be read.

    Raises:
        UserError: the parts are damaged.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError) or not isinstance(error, (ValueError, *kinds)):
            raise
        raise UserError(f"{place}: its parts cannot be read ({first_line(error)})") from error


def write_results(folder: Path, about: About, parts: Mapping[str, Part]) -> tuple[str, int]:
    """Write the table, the report and the manifest of the parts that exist.

    Return the text for the terminal, and the number of points that disagree with a published figure. A partial sweep
    gets all of them too, marked as partial.
    """
    there = {name: parts[name] for name in about["parts"] if name in parts}
    about = {**about, "status": PARTIAL} if about["status"] == COMPLETE and len(there) < len(about["parts"]) else about
    pieces, table = shelf_of(folder, about).joined(list(there.values())), folder / f"results.{about['format']}"
    if about["format"] == "parquet":
        pieces = iter([encode_parquet(pieces, column_kinds(about["columns"], about["axes"], about["metrics"]))])
    machine.write(table, pieces, sync=True)
    summary = summarize_parts(folder, about, there)
    text = f"{overview.terminal(about, summary)}\n\n{write_report(folder, about, summary)}"
    counts = {
        "done": summary.points - summary.failed,
        "failed": summary.failed,
        "disagreeing": len(summary.disagreements),
    }
    manifest.write_manifest(folder, {**about, **counts, "results": trust.seal_of_file(table), "told": text})
    return text, len(summary.disagreements)


def write_report(folder: Path, about: About, summary: Summary) -> Path:
    wanted, depth = about["report"], overview.depth_of(about)
    drawn: dict[str, bytes] = {}
    if wanted["tables"] and summary.answers.effects:
        write_answers(folder, about, summary)
    if wanted["figures"] and summary.cells:
        machine.own_folder(folder / "plots")
        forms = dict.fromkeys((*ALWAYS, *manifest.figures(about).format))
        plotted = overview.plotted(about, summary, depth)
        for name, chart in plots.draw(plotted).items():
            for form in forms:
                drawn[f"{name}.{form}"] = plots.encoded(chart, form, plotted)
                machine.write(folder / "plots" / f"{name}.{form}", drawn[f"{name}.{form}"])
    if not (wanted["tables"] or wanted["pages"]):
        return folder / f"results.{about['format']}"
    from attn_exp.report.documents import sweep_markdown, sweep_page  # noqa: PLC0415 - templates only where a report is written

    machine.write(folder / "report.md", sweep_markdown(overview.contents(about, summary, depth), list(drawn)))
    if wanted["pages"]:
        both, data = overview.contents(about, summary, "all"), overview.explorable(about, summary)
        machine.write(folder / "report.html", sweep_page(both, data, depth, drawn))
    return folder / ("report.html" if wanted["pages"] else "report.md")


def write_answers(folder: Path, about: About, summary: Summary) -> None:
    for name, (head, lines) in list_records(summary.answers).items():
        cells = [["" if cell != cell else records.label(str(cell)) for cell in line] for line in lines]  # noqa: PLR0124 - NaN is no number
        machine.write(folder / f"{name}.csv", records.as_csv([head, *cells]))
    for table in overview.paper_tables(about, summary).values():
        for ending, form in papers.FORMS.items():
            machine.write(machine.own_folder(folder / "tables") / f"{table.name}.{ending}", form(table).encode())


def collect(words: Sequence[str]) -> str:
    """Rebuild the table and the report of a sweep: `attn-exp collect DIR`."""
    return collect_again(machine.folder(words[0]))


def collect_again(folder: Path, depth: str = "", figures: Mapping[str, Any] | None = None) -> str:
    """Rebuild a sweep's table and report from its parts, and return the text for the terminal.

    `depth` and `figures` override the settings in its manifest.

    Raises:
        UserError: no sweep there, one that is running now, or a folder that cannot be read or written to.
    """
    about = manifest.load_manifest(folder)
    if depth:
        wanted = about["report"] | {"depth": depth}
        about["report"] = wanted if wanted["tables"] or wanted["pages"] else wanted | {"tables": True, "pages": True}
    if figures:
        about["figures"] |= as_yaml_value(figures)
        about["report"] |= {"figures": True}
        check_plots(manifest.figures(about))
    try:
        with locked(folder), refuse_damaged(folder):
            whole, damaged = shelf_of(folder, about).find(about["parts"])
            text, _ = write_results(folder, about, whole)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written to ({error.strerror})") from error
    return f"{text}\n\ndamaged and left out: {list_some(damaged)}" if damaged else text


def list_some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + ", ..." * (len(names) > 3)


def check_plots(figures: Figures) -> None:
    """Refuse unknown plots, and fonts that this machine lacks.

    Raises:
        UserError: the plots or the font.
    """
    refuse_unknown(figures.only)
    check_figures(replace(figures, only=()))


def show_status(words: Sequence[str]) -> str:
    """Report the status of a sweep: points done and failed, and who is running it.

    Raises:
        UserError: no sweep there.
    """
    folder = machine.folder(words[0])
    about = manifest.load_manifest(folder)
    sizes = {
        name: min(about["chunk"], about["points"] - place * about["chunk"]) for place, name in enumerate(about["parts"])
    }
    whole, damaged = shelf_of(folder, about).find(sizes)
    done, failed = sum(map(sizes.__getitem__, whole)), sum(part.failed for part in whole.values())
    count = f"{len(whole):,} of {len(sizes):,} parts" + (f", {len(damaged):,} damaged" if damaged else "")
    holder, status = machine.read_holder(folder / "lock"), about["status"]
    word = {"running": "stopped before its end", COMPLETE: "damaged since it was complete"}.get(status, status)
    ended = f"{word}; the same command continues" if done < about["points"] else COMPLETE
    running = ended if holder is None else f"running: {describe(holder)}"
    return "\n".join([about["command"], f"{done:,} of {about['points']:,} points, {failed:,} failed; {count}", running])


def import_arrow() -> Any:
    """Import `pyarrow` with its CSV and Parquet readers, an optional dependency that is slow to import.

    Raises:
        UserError: it is not installed; a sweep with this format checks before anything starts.
    """
    try:
        import pyarrow.csv  # noqa: PLC0415 - see above
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise UserError("sweep.format=parquet is not installed; pip install 'attn-exp[parquet]'") from error
    return pyarrow


def column_kinds(columns: Sequence[str], axes: Axes, metrics: Sequence[str]) -> dict[str, str]:
    """Return the type of each column: by the fields of a row, by the values of an axis, else string."""
    known = {int: "int64", float: "double", bool: "bool"}
    hints = get_type_hints(Row)
    types = dict.fromkeys(columns, "string") | {"point": "int64"}
    types |= {
        name: known.get(hints[field.name], "string") for name, field in zip(row_columns(), fields(Row), strict=True)
    }
    types |= dict.fromkeys(metrics, "double")
    swept = {"int": "int64", "float": "double", "bool": "bool"}
    types |= {axis["column"]: swept.get(axis["kind"], "string") for axis in axes}
    return types


def encode_parquet(pieces: Iterable[bytes], types: Mapping[str, str]) -> bytes:
    """Convert a table in CSV to Parquet, a piece at a time; only an empty cell is null."""
    arrow, head, stream = import_arrow(), next(pieces := iter(pieces)), BytesIO()
    aliases = {"string": arrow.string(), "int64": arrow.int64(), "double": arrow.float64(), "bool": arrow.bool_()}
    columns = {name: aliases[kind] for name, kind in types.items()}
    convert = arrow.csv.ConvertOptions(column_types=columns, null_values=[""], strings_can_be_null=False)
    parse, read = arrow.csv.ParseOptions(newlines_in_values=True), arrow.csv.ReadOptions(use_threads=False)
    with arrow.parquet.ParquetWriter(stream, arrow.schema(list(columns.items()))) as writer:
        for piece in pieces:
            writer.write_table(arrow.csv.read_csv(BytesIO(head + piece), read, parse, convert))
    return stream.getvalue()
