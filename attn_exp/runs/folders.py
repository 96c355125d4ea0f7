"""The runs and sweeps in an output folder, listed in the terminal and in `index.html`.

The folders are the only record; one that cannot be read is listed with the reason. The terminal shows a table, newest
first, each with the settings in which it differs; `index.html` has the same content and is rewritten after each of
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attn_exp import drafts, machine
from attn_exp.errors import refuse
from attn_exp.report.escapes import plain
from attn_exp.report.index import Listed, index_page
from attn_exp.report.terminal import table
from attn_exp.runs import ours, trust
from attn_exp.runs.trust import DamagedError

KINDS = {"runs": ("run", "run.json"), "sweeps": ("sweep", "manifest.json")}
"""The folders that hold runs and sweeps: the word for one, and the file that describes it."""

PAGES = ("report.html", "report.md")
COMPLETE, UNREADABLE = "complete", "cannot be read"

MOST_BYTES = 24 * 2**20
"""Size limit of a description that is read for a listing."""

DESCRIPTION = {"started": str, "status": str, "command": str, "words": [str], "title?": str, "config?": dict}
"""Fields in the description of every run and sweep."""

HEADS = ["when", "kind", "status", "settings"]
DEFAULTS = "(defaults)"
LONGEST, LONGEST_PLACE = 100, 300

MOST_ROUNDS = 20
OUTPUTS = "outputs"
"""The default output folder."""

Folders = Mapping[str, int]
"""Names such as `runs/20261121-035356-cd3286`, and the time of the folder's last change in nanoseconds."""


@dataclass(frozen=True)
class Entry:
    """One run or sweep: its folder, its status, the words that set its settings, and the page to open.

    `problem` is the reason why a folder cannot be read, or empty.
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
        """`run` or `sweep`."""
        return KINDS[self.folder.partition("/")[0]][0]

    @property
    def name(self) -> str:
        return self.folder.partition("/")[2]


def entries(output_dir: Path, there: Folders) -> list[Entry]:
    """Return the entries of the folders, newest first."""
    found = filter(None, (described(output_dir, name, changed) for name, changed in there.items()))
    return sorted(found, key=lambda entry: (entry.when, entry.changed, entry.folder), reverse=True)


def folders(output_dir: Path) -> dict[str, int]:
    """Return the folders of all runs and sweeps; hidden ones are still being written.

    Raises:
        OSError: no such folder.
    """
    kinds = sorted(path for path in output_dir.iterdir() if path.name in KINDS and path.is_dir())
    places = (path for kind in kinds for path in kind.iterdir() if not path.name.startswith(".") and path.is_dir())
    return {f"{path.parent.name}/{path.name}": path.stat().st_mtime_ns for path in places}


def described(output_dir: Path, name: str, changed: int) -> Entry | None:
    """Return the entry of a folder; None if it has no description."""
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
    """Return the words that set the settings, without the output folder."""
    return tuple(word for word in about["words"] if not word.startswith("output_dir="))


def named_output_dir(words: Sequence[str]) -> Path:
    """Return the output folder that the words of a command name, or the default."""
    return machine.folder(words[0] if words else OUTPUTS)


def read_entries(output_dir: Path) -> list[Entry]:
    """Return all runs and sweeps, newest first.

    Raises:
        UserError: no such folder.
    """
    with refuse(f"{output_dir}: cannot be read", OSError):
        return entries(output_dir, folders(output_dir))


def format_entries(output_dir: Path, listed: Sequence[Entry]) -> str:
    """Format runs and sweeps as a table, with the settings that they share above it."""
    if not listed:
        return f"{output_dir}: no runs yet"
    chosen = [set(entry.words) for entry in listed if not entry.problem]
    common = set.intersection(*chosen) if len(chosen) > 1 else set()
    cells = [
        [entry.when, entry.kind, entry.status,
         entry.problem or " ".join(word for word in entry.words if word not in common) or DEFAULTS]
        for entry in listed
    ]  # fmt: skip
    head, *rest = table(HEADS, [[plain(cell, LONGEST) for cell in line] for line in cells]).split("\n")
    places = [plain(str(output_dir / entry.folder), LONGEST_PLACE) for entry in listed]
    shared = [f"all: {plain(' '.join(sorted(common)), LONGEST_PLACE)}"] if common else []
    return "\n".join([*shared, head, *(f"{row}  {place}" for row, place in zip(rest, places, strict=True))])


def rebuild_named_index(words: Sequence[str]) -> str:
    """Rebuild the page of all runs and sweeps, and return its path: `attn-exp index [DIR]`."""
    return str(rebuild_index(named_output_dir(words)))


def rebuild_index(output_dir: Path) -> Path:
    """Rewrite `index.html` from the folders that exist now, and return its path.

    Processes may do so concurrently. Each checks the folders again after writing and starts over if something has
    changed, so that the last page written is complete. After `MOST_ROUNDS`, runs come so fast that another rebuild is
    near.

    Raises:
        UserError: no such folder, one that cannot be written to, or an `index.html` that is not ours.
    """
    page = output_dir / "index.html"
    drafts.sweep_up(output_dir)
    with refuse(f"{output_dir}: no index can be written there", OSError):
        ours.check_page(page, "index")
        for _ in range(MOST_ROUNDS):
            there = folders(output_dir)
            drafts.write_text(page, index_page([as_listed(entry) for entry in entries(output_dir, there)]))
            if folders(output_dir) == there:
                break
    return page


def as_listed(entry: Entry) -> Listed:
    """Return the index line of a run or a sweep."""
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
