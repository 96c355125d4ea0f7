"""A sweep's table and report from its parts."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attn_exp import machine
from attn_exp.errors import UserError, first_line
from attn_exp.report import papers
from attn_exp.runs import records, trust
from attn_exp.runs.folders import COMPLETE
from attn_exp.sweeps import manifest, overview, parquet
from attn_exp.sweeps.answers.answers import (
    EFFECT,
    SHARE,
    effect_records,
    effects_table,
    percentiles_table,
    share_records,
    shares_table,
)
from attn_exp.sweeps.answers.totals import Summary, summarized
from attn_exp.sweeps.folder import locked
from attn_exp.sweeps.parts import Part, Shelf

PARTIAL = "partial"


def shelf(folder: Path, about: Mapping[str, Any]) -> Shelf:
    """Return where the parts of a sweep lie; those from before names sealed them are told by its manifest."""
    columns = about["columns"]
    head = [*columns, *about.get("tally", ())]
    types = parquet.kinds(head, about["axes"], about["metrics"]) if about["format"] == "parquet" else None
    return Shelf(folder / "parts", head, len(columns), types, about.get("sealed", False))


def results(folder: Path, about: Mapping[str, Any]) -> Path:
    """Return where the one table of a sweep is: a file, or the folder of a Parquet data set."""
    return folder / ("results.csv" if about["format"] == "csv" else "parts")


def write(folder: Path, about: Mapping[str, Any], parts: Mapping[str, Part]) -> tuple[str, int]:
    """Write the table, the report and the manifest of what is there.

    Return what the terminal shows, and how many points disagree with a printed result. A partial sweep gets all of them
    too, and they say so.
    """
    there = [parts[name] for name in about["parts"] if name in parts]
    where = shelf(folder, about)
    about = {**about, "status": PARTIAL} if about["status"] == COMPLETE and len(there) < len(about["parts"]) else about
    digest = hashlib.sha256()
    if about["format"] == "csv":
        machine.write_pieces(folder / "results.csv", hashed(where.joined(there), digest), sync=True)
    summary = summarized(where.head, where.lines(there), about["axes"], about["metrics"], about["dimensions"])
    shown = render(folder, about, summary)
    text = f"{overview.terminal(about, summary)}\n\n{shown}"
    counts = {
        "done": summary.points - summary.failed,
        "failed": summary.failed,
        "disagreeing": summary.disagreeing,
    }
    table = {}
    if about["format"] == "csv":
        table = trust.seal_of_file(folder / "results.csv", -1) | {"sha256": digest.hexdigest()}
    manifest.write(folder, {**about, **counts, "results": table, "told": text})
    return text, summary.disagreeing


def hashed(pieces: Iterable[bytes], digest: Any) -> Iterator[bytes]:
    """Yield the pieces and take each into a hash."""
    for piece in pieces:
        digest.update(piece)
        yield piece


def render(folder: Path, about: Mapping[str, Any], summary: Summary) -> Path:
    """Write what the report setting asks for, and return what a reader opens first."""
    wanted, depth = about["report"], overview.depth_of(about)
    drawn: dict[str, bytes] = {}
    if wanted["tables"] and summary.answers.effects:
        write_answers(folder, summary)
    if wanted["figures"] and summary.cells:
        from attn_exp.report.sweep import plots  # noqa: PLC0415 - matplotlib only where a figure is drawn

        machine.own_folder(folder / "plots")
        for name, figure in plots.draw(overview.plotted(about, summary, depth)).items():
            for form in ("png", "svg"):
                drawn[f"{name}.{form}"] = plots.encoded(figure, form)
                machine.write(folder / "plots" / f"{name}.{form}", drawn[f"{name}.{form}"])
    if not (wanted["tables"] or wanted["pages"]):
        return results(folder, about)
    from attn_exp.report.sweep.page import sweep_markdown, sweep_page  # noqa: PLC0415 - templates only where a report is written

    write_text(folder / "report.md", sweep_markdown(overview.contents(about, summary, depth), list(drawn)))
    if wanted["pages"]:
        both, data = overview.contents(about, summary, "all"), overview.explorable(about, summary)
        write_text(folder / "report.html", sweep_page(both, data, depth, drawn))
    return folder / ("report.html" if wanted["pages"] else "report.md")


def write_answers(folder: Path, summary: Summary) -> None:
    """Write the tables of effects and of shares: in full digits as CSV, rounded in each form that papers want."""
    spread = percentiles_table(summary.answers.cube)
    if spread.lines:
        machine.write(folder / f"{spread.name}.csv", records.as_csv([spread.head, *spread.lines]).encode())
    numbers = {"effects": (EFFECT, effect_records(summary.answers)), "shares": (SHARE, share_records(summary.answers))}
    for name, (head, lines) in numbers.items():
        cells = [["" if cell != cell else str(cell) for cell in line] for line in lines]  # noqa: PLR0124 - NaN is no number
        machine.write(folder / f"{name}.csv", records.as_csv([head, *cells]).encode())
    for table in (effects_table(summary.answers), shares_table(summary.answers)):
        for ending, form in papers.FORMS.items():
            machine.write(machine.own_folder(folder / "tables") / f"{table.name}.{ending}", form(table).encode())


def write_text(path: Path, text: str) -> None:
    """Write a text whole; half a surrogate pair, which UTF-8 cannot hold, becomes its number."""
    machine.write(path, text.encode("utf-8", "backslashreplace"))


def again(folder: Path, depth: str = "") -> str:
    """Rebuild a sweep's table and report from its parts, at another depth if one is said, and return what it prints.

    Raises:
        UserError: no sweep there, one that is running now, or a folder that cannot be read or written to.
    """
    about = manifest.load(folder)
    if depth:
        wanted = about["report"] | {"depth": depth}
        about["report"] = wanted if wanted["tables"] or wanted["pages"] else wanted | {"tables": True, "pages": True}
    try:
        with locked(folder):
            inventory = shelf(folder, about).find(about["parts"])
            text, _ = write(folder, about, inventory.whole)
    except UserError:
        raise
    except (ValueError, csv.Error) as error:
        raise UserError(f"{folder}: its parts cannot be read ({first_line(error)})") from error
    except OSError as error:
        raise UserError(f"{folder}: cannot be written to ({error.strerror})") from error
    names = ", ".join(inventory.damaged[:3]) + ", ..." * (len(inventory.damaged) > 3)
    return f"{text}\n\ndamaged and left out: {names}" if inventory.damaged else text
