"""Build a sweep's table and report from its parts, and report its status, also from another terminal or machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attn_exp import drafts, machine
from attn_exp.config.choices import as_yaml_value
from attn_exp.errors import UserError, first_line
from attn_exp.patience import spoken_time
from attn_exp.report import papers
from attn_exp.report.sweep.plotted import refuse_unknown
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
from attn_exp.sweeps.answers.totals import Summary
from attn_exp.sweeps.folder import locked, running_driver
from attn_exp.sweeps.parts import Part, Shelf

PARTIAL = "partial"
ALWAYS = ("png", "svg")
"""Plot formats that are always written; `figures.format` adds others."""


def shelf_of(folder: Path, about: Mapping[str, Any]) -> Shelf:
    """Return the shelf that holds the parts of a sweep."""
    head = [*about["columns"], *about["tally"]]
    types = parquet.kinds(head, about["axes"], about["metrics"]) if about["format"] == "parquet" else None
    return Shelf(folder / "parts", head, len(about["columns"]), types)


def find_whole(folder: Path, about: Mapping[str, Any]) -> dict[str, Part]:
    """Return the intact parts of a sweep by chunk name, in order."""
    whole = shelf_of(folder, about).find(about["parts"]).whole
    return {name: whole[name] for name in about["parts"] if name in whole}


def summarize_parts(folder: Path, about: Mapping[str, Any], parts: Mapping[str, Part]) -> Summary:
    """Return the means, extremes and answers of some parts of a sweep."""
    shelf = shelf_of(folder, about)
    return overview.summarize(about, shelf.head, shelf.lines(list(parts.values())))


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


def write_results(folder: Path, about: Mapping[str, Any], parts: Mapping[str, Part]) -> tuple[str, int]:
    """Write the table, the report and the manifest of the parts that exist.

    Return the text for the terminal, and the number of points that disagree with a published figure. A partial sweep
    gets all of them too, marked as partial.
    """
    there = {name: parts[name] for name in about["parts"] if name in parts}
    about = {**about, "status": PARTIAL} if about["status"] == COMPLETE and len(there) < len(about["parts"]) else about
    table = {}
    if about["format"] == "csv":
        pieces = shelf_of(folder, about).joined(list(there.values()))
        drafts.write_pieces(folder / "results.csv", pieces, sync=True)
        table = trust.seal_of_file(folder / "results.csv")
    summary = summarize_parts(folder, about, there)
    text = f"{overview.terminal(about, summary)}\n\n{write_report(folder, about, summary)}"
    counts = {"done": summary.points - summary.failed, "failed": summary.failed, "disagreeing": summary.disagreeing}
    manifest.write_manifest(folder, {**about, **counts, "results": table, "told": text})
    return text, summary.disagreeing


def write_report(folder: Path, about: Mapping[str, Any], summary: Summary) -> Path:
    """Write what the report setting enables, and return what a reader opens first."""
    wanted, depth = about["report"], overview.depth_of(about)
    drawn: dict[str, bytes] = {}
    if wanted["tables"] and summary.answers.effects:
        write_answers(folder, about, summary)
    if wanted["figures"] and summary.cells:
        from attn_exp.report.sweep import plots  # noqa: PLC0415 - matplotlib only where a figure is drawn

        machine.own_folder(folder / "plots")
        forms = dict.fromkeys((*ALWAYS, *manifest.figures(about).format))
        for name, figure in plots.draw(overview.plotted(about, summary, depth)).items():
            for form in forms:
                drawn[f"{name}.{form}"] = plots.encoded(figure, form)
                drafts.write(folder / "plots" / f"{name}.{form}", drawn[f"{name}.{form}"])
    if not (wanted["tables"] or wanted["pages"]):
        return folder / ("results.csv" if about["format"] == "csv" else "parts")
    from attn_exp.report.sweep.page import sweep_markdown, sweep_page  # noqa: PLC0415 - templates only where a report is written

    drafts.write_text(folder / "report.md", sweep_markdown(overview.contents(about, summary, depth), list(drawn)))
    if wanted["pages"]:
        both, data = overview.contents(about, summary, "all"), overview.explorable(about, summary)
        drafts.write_text(folder / "report.html", sweep_page(both, data, depth, drawn))
    return folder / ("report.html" if wanted["pages"] else "report.md")


def write_answers(folder: Path, about: Mapping[str, Any], summary: Summary) -> None:
    """Write the effects and shares with all digits as CSV, and, together with the means, in the formats for papers."""
    spread = percentiles_table(summary.answers.cube)
    if spread.lines:
        drafts.write(folder / f"{spread.name}.csv", as_table(spread.head, spread.lines))
    numbers = {"effects": (EFFECT, effect_records(summary.answers)), "shares": (SHARE, share_records(summary.answers))}
    for name, (head, lines) in numbers.items():
        cells = [["" if cell != cell else str(cell) for cell in line] for line in lines]  # noqa: PLR0124 - NaN is no number
        drafts.write(folder / f"{name}.csv", as_table(head, cells))
    means = overview.means_table(about, summary, overview.depth_of(about))
    for table in (effects_table(summary.answers), shares_table(summary.answers), means):
        for ending, form in papers.FORMS.items():
            drafts.write(machine.own_folder(folder / "tables") / f"{table.name}.{ending}", form(table).encode())


def as_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> bytes:
    """Format a table of numbers and texts as CSV."""
    return drafts.as_bytes(records.as_csv([head, *(list(map(records.label, line)) for line in lines)]))


def collect(words: Sequence[str]) -> str:
    """Rebuild the table and the report of a sweep: `attn-exp collect DIR`."""
    return collect_again(machine.folder(words[0]))


def collect_again(folder: Path, depth: str = "", figures: Mapping[str, Any] | None = None) -> str:
    """Rebuild a sweep's table and report from its parts, optionally with another depth or figure settings, and return
    the text for the terminal.

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
        check_plots(about)
    try:
        with locked(folder), refuse_damaged(folder):
            inventory = shelf_of(folder, about).find(about["parts"])
            text, _ = write_results(folder, about, inventory.whole)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written to ({error.strerror})") from error
    return f"{text}\n\ndamaged and left out: {list_some(inventory.damaged)}" if inventory.damaged else text


def list_some(names: Sequence[str]) -> str:
    """Join the first three names, with dots for any more."""
    return ", ".join(names[:3]) + ", ..." * (len(names) > 3)


def check_plots(about: Mapping[str, Any]) -> None:
    """Refuse unknown plots, and fonts that this machine lacks.

    Raises:
        UserError: the plots or the font.
    """
    wanted = manifest.figures(about)
    refuse_unknown(wanted.only)
    if wanted.font is not None:
        from attn_exp.report.figures import check  # noqa: PLC0415 - Matplotlib is slow to import

        check(wanted)


def show_status(words: Sequence[str]) -> str:
    """Report the status of a sweep: points done and failed, who is running it, how fast, and the time left.

    Raises:
        UserError: no sweep there.
    """
    folder = machine.folder(words[0])
    about = manifest.load_manifest(folder)
    sizes = {
        name: min(about["chunk"], about["points"] - place * about["chunk"]) for place, name in enumerate(about["parts"])
    }
    inventory = shelf_of(folder, about).find(sizes)
    done, failed = sum(map(sizes.__getitem__, inventory.whole)), sum(part.failed for part in inventory.whole.values())
    damaged = f", {len(inventory.damaged):,} damaged" if inventory.damaged else ""
    count = f"{len(inventory.whole):,} of {len(sizes):,} parts{damaged}"
    who, left = running_driver(folder), about["points"] - done
    lines = [about["command"], f"{done:,} of {about['points']:,} points, {failed:,} failed; {count}"]
    lines.append(f"running: {who}" if who else tell_end(about["status"], left))
    if who and left:
        times = [part.path.stat().st_mtime for part in inventory.whole.values()]
        fresh = sum(time_written >= about["clock"] for time_written in times)
        rate = fresh * about["chunk"] / max(1e-3, time.time() - about["clock"])
        lines.append(f"{rate:,.0f}/s" + (f", {spoken_time(left / rate)} left" if rate else ""))
    return "\n".join(lines)


def tell_end(status: str, left: int) -> str:
    """Describe how a sweep that nobody runs ended, and how to continue it."""
    if not left:
        return COMPLETE
    word = {"running": "stopped before its end", COMPLETE: "damaged since it was complete"}.get(status, status)
    return f"{word}; the same command continues"
