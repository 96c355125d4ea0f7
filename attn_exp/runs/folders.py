"""List the runs and sweeps of an output folder, in the terminal and in `index.html`.

There is no record of runs other than their folders; an unreadable folder is listed with the reason. The table, newest
first, shows the settings in which runs differ. `index.html` has the same content, and is rewritten after each run or
sweep.
"""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attn_exp import machine
from attn_exp.errors import UserError, refuse
from attn_exp.report.escapes import plain
from attn_exp.report.pages import Listed, index_page
from attn_exp.report.sentences import table
from attn_exp.runs import trust
from attn_exp.runs.trust import DamagedError

KINDS = {"runs": ("run", "run.json"), "sweeps": ("sweep", "manifest.json")}
"""For the folders of runs and of sweeps: the word for one entry, and the name of the file that describes it."""

PAGES = ("report.html", "report.md")  # the files that may be the report of a run, the preferred one first
COMPLETE, UNREADABLE = "complete", "cannot be read"

MOST_BYTES = 24 * 2**20  # size limit of a description that is read for a listing

# the fields that the descriptions of runs and sweeps share
DESCRIPTION = {"started": str, "status": str, "command": str, "words": [str], "title?": str, "config?": {"title?": str}}

HEADS = ["when", "kind", "status", "settings"]
DEFAULTS = "(defaults)"  # shown for a run whose settings are all defaults
LONGEST, LONGEST_PLACE = 100, 300  # maximum length of a cell, and of a path or list of settings beside the table


def read_entries(output_dir: Path) -> list[Listed]:
    """Return all runs and sweeps, newest first; hidden folders are left out, since they are still being written.

    Raises:
        UserError: there is no such folder, or it cannot be read.
    """
    with refuse(f"{output_dir}: cannot be read", OSError):
        kind_folders = sorted(path for path in output_dir.iterdir() if path.name in KINDS and path.is_dir())
        folders = (path for kind in kind_folders for path in kind.iterdir() if path.name[0] != "." and path.is_dir())
        entries = list(filter(None, map(read_entry, folders)))
    return sorted(entries, key=lambda entry: (entry.when, entry.name), reverse=True)


def read_entry(folder: Path) -> Listed | None:
    kind, file = KINDS[folder.parent.name]
    entry = Listed(folder.name, kind, f"{folder.parent.name}/{folder.name}/", when="")
    try:
        about = trust.read_json(folder / file, DESCRIPTION, MOST_BYTES)
        title = about.get("title", about.get("config", {}).get("title", ""))
    except FileNotFoundError:
        return None
    except (OSError, DamagedError) as error:
        problem = f"{file}: {error.strerror}" if isinstance(error, OSError) else str(error)
        return entry._replace(ended=UNREADABLE, problem=problem)
    report = next((report for report in PAGES if (folder / report).is_file()), "")
    ended = "" if about["status"] == COMPLETE else about["status"]
    return entry._replace(  # `page` is the folder, ending in a slash, until a report is appended
        page=entry.page + report, when=about["started"], ended=ended, title=title, words=settings(about)
    )


def settings(about: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(word for word in about["words"] if not word.startswith("output_dir="))


def named_output_dir(words: Sequence[str]) -> Path:
    return machine.folder(words[0] if words else trust.OUTPUTS)


def format_entries(output_dir: Path, listed: Sequence[Listed]) -> str:
    """Format runs and sweeps as a table, below a line with the settings that all of them share."""
    if not listed:
        return f"{output_dir}: no runs yet"
    settings_of = [set(entry.words) for entry in listed if not entry.problem]
    common = set.intersection(*settings_of) if len(settings_of) > 1 else set()
    cells = [
        [entry.when, entry.kind, entry.ended or COMPLETE,
         entry.problem or " ".join(word for word in entry.words if word not in common) or DEFAULTS]
        for entry in listed
    ]  # fmt: skip
    head, *rows = table(HEADS, [[plain(cell, LONGEST) for cell in line] for line in cells]).split("\n")
    paths = [plain(str(output_dir / f"{entry.kind}s" / entry.name), LONGEST_PLACE) for entry in listed]
    shared = [f"all: {plain(' '.join(sorted(common)), LONGEST_PLACE)}"] if common else []
    return "\n".join([*shared, head, *(f"{row}  {path}" for row, path in zip(rows, paths, strict=True))])


def rebuild_named_index(words: Sequence[str]) -> str:
    return str(rebuild_index(named_output_dir(words)))


def rebuild_index(output_dir: Path) -> Path:
    """Rewrite `index.html` from the folders that exist now, and return its path.

    If two processes rewrite it at once, the folder of one may be missing from the page until the next run adds it.

    Raises:
        UserError: the folder is missing or cannot be written to, or its `index.html` was not written by attn-exp.
    """
    page = output_dir / "index.html"
    with refuse(f"{output_dir}: cannot write an index there", OSError):
        trust.check_page(page, "index")
        machine.write(page, index_page(read_entries(output_dir)))
    return page


def open_newest(words: Sequence[str]) -> str:
    """Open the newest report in a browser: `attn-exp open [DIR]`.

    Return its path if no browser could be opened, else an empty string.

    Raises:
        UserError: there is no such folder, or it contains no report.
    """
    page = find_newest_report(named_output_dir(words))
    return "" if webbrowser.open(page.absolute().as_uri()) else str(page)


def find_newest_report(output_dir: Path) -> Path:
    """Return the report of the folder itself, or of the run or sweep in it that was started last.

    Raises:
        UserError: there is no such folder, or it contains no report.
    """
    reports = [output_dir / name for name in PAGES if (output_dir / name).is_file()]
    # an entry without a report has only its folder as the page
    reports = reports or [output_dir / entry.page for entry in read_entries(output_dir) if not entry.page.endswith("/")]
    if not reports:
        raise UserError(f"{output_dir}: no report yet; write one with python -m attn_exp")
    return reports[0]
