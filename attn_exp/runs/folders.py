"""What lies in an output folder: its runs and sweeps, each as its own file describes it.

The folders are the truth, and a folder that cannot be read is an entry that says so.

In the terminal they are a table, newest first, each with the settings in which it differs; `index.html` is the same as
a page, written anew after each of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attn_exp import drafts, machine
from attn_exp.errors import UserError
from attn_exp.report.escapes import plain
from attn_exp.report.index import Listed, index_page
from attn_exp.report.terminal import table
from attn_exp.runs import ours, trust
from attn_exp.runs.trust import DamagedError

KINDS = {"runs": ("run", "run.json"), "sweeps": ("sweep", "manifest.json")}
"""The folders that hold runs and sweeps: what one is called, and the file that describes it."""

PAGES = ("report.html", "report.md")
COMPLETE, UNREADABLE = "complete", "cannot be read"

MOST_BYTES = 24 * 2**20
"""A description that is larger is not opened for a line of a list."""

DESCRIPTION = {"started": str, "status": str, "command": str, "words": [str], "title?": str, "config?": dict}
"""What every run and sweep says of itself."""

HEADS = ["when", "kind", "status", "settings"]
DEFAULTS = "(defaults)"
LONGEST, LONGEST_PLACE = 100, 300

MOST_ROUNDS = 20
OUTPUTS = "outputs"
"""Where runs and sweeps go unless `output_dir` says otherwise."""

Folders = Mapping[str, int]
"""Names such as `runs/20261121-035356-cd3286`, and when something in that folder last changed, in nanoseconds."""


@dataclass(frozen=True)
class Entry:
    """One run or sweep: where it is, how it ended, the words that chose its settings, and what a reader opens.

    `problem` says why a folder cannot be read, and is empty where it can.
    """

    folder: str
    changed: int
    when: str = ""
    status: str = UNREADABLE
    title: str = ""
    words: tuple[str, ...] = ()
    page: str = ""
    problem: str = ""

    @property
    def kind(self) -> str:
        """What it is: a run or a sweep."""
        return KINDS[self.folder.partition("/")[0]][0]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.partition("/")[2]


def entries(output_dir: Path, there: Folders) -> list[Entry]:
    """Return what the folders say of themselves, newest first."""
    found = filter(None, (described(output_dir, name, changed) for name, changed in there.items()))
    return sorted(found, key=lambda entry: (entry.when, entry.changed, entry.folder), reverse=True)


def folders(output_dir: Path) -> dict[str, int]:
    """Return the folders of all runs and sweeps; hidden ones are still being written.

    Raises:
        OSError: no such folder.
    """
    below = sorted(path.name for path in output_dir.iterdir() if path.name in KINDS and path.is_dir())
    places: dict[str, int] = {}
    for kind in below:
        with os.scandir(output_dir / kind) as listed:
            places |= {
                f"{kind}/{item.name}": item.stat().st_mtime_ns
                for item in listed
                if not item.name.startswith(".") and item.is_dir()
            }
    return places


def described(output_dir: Path, name: str, changed: int) -> Entry | None:
    """Return what a folder says of itself; None where it says nothing at all."""
    folder = output_dir / name
    file = KINDS[name.partition("/")[0]][1]
    try:
        about = trust.read_json(folder / file, DESCRIPTION, MOST_BYTES)
        title = about.get("title", about.get("config", {}).get("title", ""))
        trust.check_shape(title, str, f"{file}: title")
    except FileNotFoundError:
        return None
    except OSError as error:
        return Entry(name, changed, problem=f"{file}: {error.strerror}")
    except DamagedError as error:
        return Entry(name, changed, problem=str(error))
    page = next((page for page in PAGES if (folder / page).is_file()), "")
    return Entry(name, changed, about["started"], about["status"], title, settings(about), page)


def settings(about: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words that chose the settings; where the results went is none."""
    return tuple(word for word in about["words"] if not word.startswith("output_dir="))


def named_output_dir(words: Sequence[str]) -> Path:
    """Return the output folder that the words of a command name, or the usual one."""
    return machine.folder(words[0] if words else OUTPUTS)


def read_entries(output_dir: Path) -> list[Entry]:
    """Return all runs and sweeps, newest first.

    Raises:
        UserError: no such folder.
    """
    try:
        return entries(output_dir, folders(output_dir))
    except OSError as error:
        raise UserError(f"{output_dir}: cannot be read ({error.strerror})") from error


def format_entries(output_dir: Path, listed: Sequence[Entry]) -> str:
    """Return a table of runs and sweeps, with the settings that they share above it."""
    if not listed:
        return f"{output_dir}: no runs yet"
    chosen = [set(entry.words) for entry in listed if not entry.problem]
    common = set.intersection(*chosen) if len(chosen) > 1 else set()
    cells = [[plain(cell, LONGEST) for cell in cells_of(entry, common)] for entry in listed]
    places = [plain(str(output_dir / entry.folder), LONGEST_PLACE) for entry in listed]
    head, *rest = table(HEADS, cells).split("\n")
    text = "\n".join([head, *(f"{row}  {place}" for row, place in zip(rest, places, strict=True))])
    return f"all: {plain(' '.join(sorted(common)), LONGEST_PLACE)}\n{text}" if common else text


def cells_of(entry: Entry, common: set[str]) -> list[str]:
    """Return the cells of one run or sweep."""
    own = " ".join(word for word in entry.words if word not in common) or DEFAULTS
    return [entry.when, entry.kind, entry.status, entry.problem or own]


def rebuild_named_index(words: Sequence[str]) -> str:
    """Rebuild the page of all runs and sweeps, and return its path: `attn-exp index [DIR]`."""
    return str(rebuild_index(named_output_dir(words)))


def rebuild_index(output_dir: Path) -> Path:
    """Write `index.html` anew from what is there now, and return its path.

    Processes may do so at once. Each looks again after writing and starts over where something has changed, so the last
    page written lacks nothing. After `MOST_ROUNDS` runs come so fast that the next one's rebuild is near.

    Raises:
        UserError: no such folder, one that cannot be written to, or one with an `index.html` of somebody else's.
    """
    page = output_dir / "index.html"
    drafts.sweep_up(output_dir)
    try:
        ours.check_page(page, "index")
        for _ in range(MOST_ROUNDS):
            there = folders(output_dir)
            drafts.write_text(page, index_page([as_listed(entry) for entry in entries(output_dir, there)]))
            if folders(output_dir) == there:
                break
    except OSError as error:
        raise UserError(f"{output_dir}: no index can be written there ({error.strerror})") from error
    return page


def as_listed(entry: Entry) -> Listed:
    """Return what the page says of a run or a sweep."""
    return Listed(
        name=entry.name,
        kind=entry.kind,
        page=f"{entry.folder}/{entry.page}",
        when=entry.when,
        ended="" if entry.status == COMPLETE else entry.status,
        title=entry.title,
        words=entry.words,
        problem=entry.problem,
    )
