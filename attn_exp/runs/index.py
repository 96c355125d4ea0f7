"""The index of an output folder: one page of all runs and sweeps, each with the settings in which it differs.

The folders are the truth. What they say of themselves is kept in `.index.json`, so that a rebuild opens only what is
new; whoever deletes that file loses time and nothing else.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from pathlib import Path
from string import Template
from urllib.parse import quote

from attn_exp import machine
from attn_exp.errors import UserError
from attn_exp.report.terminal import plain

KINDS = {"runs": ("run", "run.json"), "sweeps": ("sweep", "manifest.json")}
"""The folders that hold runs and sweeps: what one is called, and the file that describes it."""

PAGES = ("report.html", "report.md")
SHELL = Path(__file__).parent.with_name("report") / "templates" / "index.html"
MOST_COLUMNS = 6
MOST_ROUNDS = 20
NOTHING = "Nothing here yet: python -m attn_exp computes a first run."

Folders = Mapping[str, int]
"""Names such as `runs/20261121-035356-cd3286`, and when something in that folder last changed, in nanoseconds."""


@dataclass(frozen=True)
class Entry:
    """One run or sweep: where it is, how it ended, the words that chose its settings, and what a reader opens."""

    folder: str
    changed: int
    when: str
    status: str
    title: str
    words: tuple[str, ...]
    page: str

    @property
    def kind(self) -> str:
        return KINDS[self.folder.partition("/")[0]][0]


def rebuild(output_dir: Path) -> Path:
    """Write `index.html` anew from what is there now, and return its path.

    Processes may do so at once. Each looks again after writing and starts over where something has changed, so the last
    page written lacks nothing. After `MOST_ROUNDS` runs come so fast that the next one's rebuild is near.

    Raises:
        UserError: no such folder, or one that cannot be written to.
    """
    page = output_dir / "index.html"
    try:
        for _ in range(MOST_ROUNDS):
            there = folders(output_dir)
            written(page, html(entries(output_dir, there)))
            if folders(output_dir) == there:
                break
    except OSError as error:
        raise UserError(f"{output_dir}: no index can be written there ({error.strerror})") from error
    return page


def entries(output_dir: Path, there: Folders) -> list[Entry]:
    """Return what the folders say of themselves, newest first, and remember it; unfinished ones are read each time."""
    known = remembered(output_dir)
    found = {name: known.get(name) for name in there}
    stale = [name for name, entry in found.items() if entry is None or entry.changed != there[name]]
    fresh = {name: described(output_dir, name, there[name]) for name in stale}
    every = [entry for entry in (found | fresh).values() if entry is not None]
    if stale or len(known) != len(every):
        remember(output_dir, [entry for entry in every if entry.status == "complete"])
    return sorted(every, key=lambda entry: (entry.when, entry.folder), reverse=True)


def folders(output_dir: Path) -> dict[str, int]:
    """Return the folders of all runs and sweeps; hidden ones are still being written.

    Raises:
        OSError: no such folder.
    """
    found = {}
    below = {each.name for each in output_dir.iterdir() if each.name in KINDS}
    for kind in sorted(below):
        with os.scandir(output_dir / kind) as listed:
            for each in listed:
                if not each.name.startswith(".") and each.is_dir():
                    found[f"{kind}/{each.name}"] = each.stat().st_mtime_ns
    return found


def described(output_dir: Path, name: str, changed: int) -> Entry | None:
    """Return what a folder says of itself; None where it is no run or sweep that can be read."""
    folder = output_dir / name
    try:
        about = json.loads((folder / KINDS[name.partition("/")[0]][1]).read_text(encoding="utf-8"))
        title = about.get("title", about.get("config", {}).get("title", ""))
        told = (str(about["started"]), str(about["status"]), str(title))
        words = tuple(settings(str(about["command"])))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    page = next((each for each in PAGES if (folder / each).is_file()), "")
    return Entry(name, changed, *told, words, page)


def settings(command: str) -> list[str]:
    """Return the words of a command line that choose settings; where the results went is none."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return [word for word in words[3:] if word not in ("-m", "--multirun") and not word.startswith("output_dir=")]


def remembered(output_dir: Path) -> dict[str, Entry]:
    """Return what an earlier rebuild found, by folder."""
    try:
        lines = json.loads((output_dir / ".index.json").read_text(encoding="utf-8"))
        names = [each.name for each in fields(Entry)]
        known = [Entry(**{**dict(zip(names, line, strict=True)), "words": tuple(line[5])}) for line in lines]
    except (OSError, ValueError, TypeError, IndexError):
        return {}
    return {entry.folder: entry for entry in known}


def remember(output_dir: Path, found: Sequence[Entry]) -> None:
    lines = [[getattr(entry, each.name) for each in fields(Entry)] for entry in found]
    written(output_dir / ".index.json", json.dumps(lines, separators=(",", ":")))


def written(path: Path, text: str) -> None:
    """Write a page; half a surrogate pair, which UTF-8 cannot hold, becomes its number."""
    machine.write(path, text.encode("utf-8", "backslashreplace"))


def html(found: Sequence[Entry]) -> str:
    """Return the page: a table that needs nothing else, which its script makes sortable and filterable."""
    values = [dict(keyed(entry.words)) for entry in found]
    common = {key: value for key, value in (values[0] if values else {}).items() if shared(key, value, values)}
    columns = differing(values, common) if len(found) > 1 else []
    common = common if len(found) > 1 else {}
    titled = any(entry.title for entry in found)
    heads = ["run", *["title"] * titled, *columns, "other settings" if columns else "settings", "started"]
    rest = [{key: value for key, value in each.items() if key not in common} for each in values]
    filled = [line(entry, each, columns, titled) for entry, each in zip(found, rest, strict=True)]
    told = f"All with {' '.join(map(word, common.items()))}." if common else "" if found else NOTHING
    return Template(SHELL.read_text(encoding="utf-8")).substitute(
        count=f"{len(found):,}",
        common=safe(told, 1000),
        heads="".join(map(head, heads)),
        rows="\n".join(filled),
    )


def keyed(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the key and value of each setting; a word without a value is its own key."""
    for each in words:
        key, _, value = each.partition("=")
        yield key, value


def word(setting: tuple[str, str]) -> str:
    return "=".join(setting) if setting[1] else setting[0]


def shared(key: str, value: str, values: Sequence[Mapping[str, str]]) -> bool:
    return all(each.get(key) == value for each in values)


def differing(values: Sequence[Mapping[str, str]], common: Mapping[str, str]) -> list[str]:
    """Return the settings that most runs choose and not all alike, at most `MOST_COLUMNS`, most chosen first."""
    counts: dict[str, int] = {}
    for each in values:
        for key, value in each.items():
            if value and key not in common:
                counts[key] = counts.get(key, 0) + 1
    return sorted(counts, key=lambda key: (-counts[key], key))[:MOST_COLUMNS]


def head(name: str) -> str:
    """Return one head of the table, which begins in the order of `started`."""
    order = ' aria-sort="descending"' if name == "started" else ""
    return f'<th scope="col"{order}>{breakable(safe(name))}</th>'


def line(entry: Entry, values: Mapping[str, str], columns: Sequence[str], titled: bool) -> str:
    """Return one row of the table; every text in it is escaped."""
    address = quote(f"{entry.folder}/{entry.page}", errors="backslashreplace")
    link = f'<a href="{address}">{safe(entry.folder.partition("/")[2])}</a>'
    ended = "" if entry.status == "complete" else f" ({safe(entry.status)})"
    others = " ".join(word(each) for each in values.items() if each[0] not in columns)
    cells = [
        f'<th scope="row">{link} <small>{entry.kind}{ended}</small></th>',
        *[f'<td class="wide">{safe(entry.title, 200)}</td>'] * titled,
        *(f"<td>{breakable(safe(values.get(each, '')))}</td>" for each in columns),
        f'<td class="wide">{breakable(safe(others, 200))}</td>' if others else "<td></td>",
        f"<td>{safe(entry.when[:19].replace('T', ' '))}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"


def breakable(text: str) -> str:
    """Let a line end after the commas, and before the dots between words, of escaped text."""
    return re.sub(r",|(?<=[a-z])(?=\.[a-z])", r"\g<0><wbr>", text)


def safe(text: str, most: int = 80) -> str:
    """Return a text as HTML shows it: on one line, cut, controls and marks escaped."""
    return escape(text if text.isascii() and text.isprintable() and len(text) <= most else plain(text, most))
