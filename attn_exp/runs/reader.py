"""Open the newest report, and redraw the report of a run."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from attn_exp import drafts, machine
from attn_exp.config.schema import Report
from attn_exp.errors import UserError, first_line, printable
from attn_exp.experiment.comparison import Run
from attn_exp.runs import folders, recorded_code, rendering, store
from attn_exp.runs.rendering import DEPTH, Anew, said_anew


def open_newest(words: Sequence[str]) -> str:
    """Open the newest report in a browser: `attn-exp open [DIR]`.

    Return its path if there is no browser, else an empty text.

    Raises:
        UserError: no such folder, or no report in it.
    """
    page = newest(folders.named_output_dir(words))
    try:
        opened = webbrowser.open(page.absolute().as_uri())
    except webbrowser.Error:
        opened = False
    return "" if opened else str(page)


def newest(output_dir: Path) -> Path:
    """Return the folder's own report, or that of the run or sweep that was started last.

    Raises:
        UserError: no such folder, or no report in it.
    """
    pages = [output_dir / page for page in folders.PAGES if (output_dir / page).is_file()]
    pages = pages or [output_dir / one.folder / one.page for one in folders.read_entries(output_dir) if one.page]
    if not pages:
        raise UserError(f"{output_dir}: no report yet; write one with python -m attn_exp")
    return pages[0]


def render_again(folder: Path, words: Sequence[str] = ()) -> str:
    """Redraw the report of a run from its results, computing no attention, and return what to open.

    It writes what the run was configured to write, or everything if that was `report=none`. Words such as
    `figures.format=pdf` change how figures are drawn this time, even if the run drew none, and `report.depth` changes
    the depth; with `figures.only`, only the named figures are drawn and nothing else is written. Files are replaced
    once all are drawn.

    Raises:
        UserError: no readable run there, another setting, or a folder that cannot be written to.
    """
    folder = machine.resolved(folder)
    if (folder / "manifest.json").is_file():
        raise UserError(f"{folder} is a sweep; write attn-exp collect {folder}")
    changes = said_anew(words, "attn-exp report")
    run = shown_as(store.load(folder), changes)
    rendering.check_figures(run.comparison.config.figures)
    members = recorded_code.members_without_code(run.about)
    with store.refuse_unwritable(str(folder)), drafts.more_files(folder) as draft, members:
        try:
            rendering.render(run, draft)
        except UserError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            misfit = f"{folder}: its tables and arrays do not fit each other ({first_line(error)})"
            raise UserError(misfit) from error
        lacking, empty = recorded_code.members_left_out(), rendering.not_drawn(draft, run.comparison.config)
        alone = sorted(path.name for path in (draft / "figures").glob("*"))
    home = folder.resolve().parent
    if home.name in folders.KINDS:
        with suppress(UserError):
            folders.rebuild_index(home.parent)
    for line in filter(None, (lacking, empty)):
        print(f"attn_exp: {printable(line)}", file=sys.stderr)
    if changes.figures.get("only"):
        return "\n".join(str(folder / "figures" / name) for name in alone)
    return str(rendering.opens_first(folder, run.comparison.config))


def shown_as(run: Run, changes: Anew) -> Run:
    """Apply changed settings of figures and depth to a run; one that wrote no report gets a full one.

    Raises:
        UserError: a depth for figures alone, which do not depend on it.
    """
    config, alone = run.comparison.config, changes.figures.get("only")
    if alone and changes.depth:
        raise UserError(f"{DEPTH}: figures.only draws figures alone; leave one of the two out")
    wanted = config.report
    if not (wanted.tables or wanted.figures or wanted.pages):
        wanted = replace(wanted, tables=True, figures=True, pages=True)
    if alone:
        wanted = Report(tables=False, pages=False)
    elif changes.figures:
        wanted = replace(wanted, figures=True)
    if changes.depth:
        texts = {} if wanted.tables or wanted.pages else {"tables": True, "pages": True}
        wanted = replace(wanted, depth=changes.depth, **texts)
    figures = replace(config.figures, **changes.figures)
    return replace(run, comparison=replace(run.comparison, config=replace(config, figures=figures, report=wanted)))
