"""A sweep's table and report from its parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attn_exp import machine
from attn_exp.sweep import lock, manifest, overview, parquet, parts
from attn_exp.sweep.parts import Part, Shelf
from attn_exp.sweep.totals import Summary, summarized


def shelf(folder: Path, about: Mapping[str, Any]) -> Shelf:
    """Return where the parts of a sweep lie."""
    columns = about["columns"]
    types = parquet.kinds(columns, about["axes"], about["metrics"]) if about["format"] == "parquet" else None
    return Shelf(folder / "parts", columns, types)


def results(folder: Path, about: Mapping[str, Any]) -> Path:
    """Return where the one table of a sweep is: a file, or the folder of a Parquet data set."""
    return folder / ("results.csv" if about["format"] == "csv" else "parts")


def write(folder: Path, about: Mapping[str, Any], found: Mapping[str, Part]) -> str:
    """Write the table, the report and the manifest of what is there, and return what the terminal shows.

    A partial sweep gets all of them too, and they say so.
    """
    there = [found[name] for name in about["parts"] if name in found]
    where = shelf(folder, about)
    if about["format"] == "csv":
        machine.write_pieces(folder / "results.csv", parts.joined(about["columns"], there))
    summary = summarized(about["columns"], where.lines(there), about["axes"], about["metrics"])
    shown = render(folder, about, summary)
    told = f"{overview.terminal(about, summary)}\n\n{shown}"
    counts = {"done": summary.points - summary.failed, "failed": summary.failed, "told": told}
    manifest.write(folder, {**about, **counts})
    return told


def render(folder: Path, about: Mapping[str, Any], summary: Summary) -> Path:
    """Write what the report setting asks for, and return what a reader opens first."""
    wanted = about["report"]
    drawn: dict[str, bytes] = {}
    if wanted["figures"] and summary.cells:
        from attn_exp.sweep import plots  # noqa: PLC0415 - matplotlib only where a figure is drawn

        (folder / "plots").mkdir(exist_ok=True)
        for name, figure in plots.draw(about, summary).items():
            for form in ("png", "svg"):
                drawn[f"{name}.{form}"] = plots.encoded(figure, form)
                machine.write(folder / "plots" / f"{name}.{form}", drawn[f"{name}.{form}"])
    if not (wanted["tables"] or wanted["pages"]):
        return results(folder, about)
    from attn_exp.sweep import pages  # noqa: PLC0415 - templates only where a report is written

    machine.write(folder / "report.md", pages.markdown(about, summary, list(drawn)).encode())
    if wanted["pages"]:
        machine.write(folder / "report.html", pages.page(about, summary, drawn).encode())
    return folder / ("report.html" if wanted["pages"] else "report.md")


def again(folder: Path) -> str:
    """Rebuild a sweep's table and report from its parts, and return what the terminal shows.

    Raises:
        UserError: no sweep there, or one that is running now.
    """
    about = manifest.load(folder)
    with lock.held(folder):
        return write(folder, about, shelf(folder, about).find())
