"""What is on disk, for its reader: the newest report opened, a report drawn again."""

from __future__ import annotations

import os
import secrets
import shutil
import webbrowser
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from attn_exp import index, session, store
from attn_exp.config import UserError


def show(output_dir: Path) -> str:
    """Open the newest report in a browser; return its path where there is none, and nothing where there is.

    Raises:
        UserError: no such folder, or no report in it.
    """
    page = newest(output_dir)
    try:
        opened = webbrowser.open(page.absolute().as_uri())
    except webbrowser.Error:
        opened = False
    return "" if opened else str(page)


def newest(output_dir: Path) -> Path:
    """Return the report of the run or sweep that was started last.

    Raises:
        UserError: no such folder, or no report in it.
    """
    try:
        found = index.entries(output_dir, index.folders(output_dir))
    except OSError as error:
        raise UserError(f"{output_dir}: cannot be read ({error.strerror})") from error
    page = next((output_dir / entry.folder / entry.page for entry in found if entry.page), None)
    if page is None:
        raise UserError(f"{output_dir}: no report yet; write one with python -m attn_exp")
    return page


def render_again(folder: Path) -> str:
    """Draw the report of a run anew from its results, computing no attention, and return what to open.

    What the run was told to write is written, or everything where it was told `report=none`. Files are replaced once
    all are drawn.

    Raises:
        UserError: no run there that can be read, or a folder that cannot be written to.
    """
    if (folder / "manifest.json").is_file():
        raise UserError(f"{folder} is a sweep; write attn-exp collect {folder}")
    run = wanting_something(store.load(folder))
    draft = folder / f".{secrets.token_hex(4)}"
    try:
        draft.mkdir()
        try:
            session.render(run, draft)
            move_files(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        if error.errno not in store.USER_ERRORS:
            raise
        raise UserError(f"{folder}: cannot be written to ({error.strerror})") from error
    home = folder.resolve().parent
    if home.name in index.KINDS:
        with suppress(UserError):
            index.rebuild(home.parent)
    return str(session.newest(folder, run.comparison.config))


def wanting_something(run: store.Run) -> store.Run:
    """Return the run, wanting a full report where it wanted none."""
    config = run.comparison.config
    if config.report.tables or config.report.figures or config.report.pages:
        return run
    full = replace(config, report=replace(config.report, tables=True, figures=True, pages=True))
    return replace(run, comparison=replace(run.comparison, config=full))


def move_files(source: Path, target: Path) -> None:
    """Move every file below `source` to its place below `target`, each replacing one of its name."""
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(exist_ok=True)
        else:
            os.replace(path, place)
