"""The index of an output folder: one page of all runs and sweeps, each with the settings in which it differs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from urllib.parse import quote

from attn_exp import machine
from attn_exp.errors import UserError
from attn_exp.report import words
from attn_exp.report.inline import inline, policy, scripts, template_text
from attn_exp.report.plain import plain
from attn_exp.runs.folders import COMPLETE, Entry, entries, folders

MOST_COLUMNS = 6
MOST_ROUNDS = 20
ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
"""As `html.escape` has it, whose module every run would wait for: it brings all names that HTML has for letters."""


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


def written(path: Path, text: str) -> None:
    """Write a page; half a surrogate pair, which UTF-8 cannot hold, becomes its number."""
    machine.write(path, text.encode("utf-8", "backslashreplace"))


def html(listed: Sequence[Entry]) -> str:
    """Return the page: a table that needs nothing else, which its script makes sortable and filterable."""
    settings = [dict(keyed(entry.words)) for entry in listed]
    readable = [values for entry, values in zip(listed, settings, strict=True) if not entry.problem]
    common = in_common(readable) if len(listed) > 1 else {}
    columns = differing(readable, common) if len(listed) > 1 else []
    titled = any(entry.title for entry in listed)
    heads = [
        words.RUN,
        *[words.TITLE] * titled,
        *columns,
        words.OTHER_SETTINGS if columns else words.SETTINGS,
        words.STARTED,
    ]
    rest = [{key: value for key, value in values.items() if key not in common} for values in settings]
    rows = [line(entry, values, columns, titled) for entry, values in zip(listed, rest, strict=True)]
    remark = (
        words.ALL_HAVE.format(settings=" ".join(map(word, common.items())))
        if common
        else ""
        if listed
        else words.NOTHING_YET
    )
    style, script = inline(template_text("index.css")), scripts("index.js")
    return Template(template_text("index.html")).substitute(
        policy=policy(style, script),
        style=style,
        script=script,
        title=words.RUNS_AND_SWEEPS,
        filter=words.FILTER,
        count=words.COUNT_SHOWN.format(shown=f'<output id="shown">{len(listed):,}</output>', all=f"{len(listed):,}"),
        common=safe(remark, 1000),
        heads="".join(map(head, heads)),
        rows="\n".join(rows),
    )


def keyed(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the key and value of each setting; a word without a value is its own key."""
    for setting in words:
        key, _, value = setting.partition("=")
        yield key, value


def word(setting: tuple[str, str]) -> str:
    return "=".join(setting) if setting[1] else setting[0]


def in_common(settings: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the settings that all of them choose alike."""
    first = settings[0] if settings else {}
    return {key: value for key, value in first.items() if all(values.get(key) == value for values in settings)}


def differing(settings: Sequence[Mapping[str, str]], common: Mapping[str, str]) -> list[str]:
    """Return the settings that most runs choose and not all alike, at most `MOST_COLUMNS`, most chosen first."""
    counts: dict[str, int] = {}
    for values in settings:
        for key, value in values.items():
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
    link = f'<a href="{address}">{safe(entry.name)}</a>'
    ended = "" if entry.status == COMPLETE else f" ({safe(entry.status)})"
    others = entry.problem or " ".join(word(setting) for setting in values.items() if setting[0] not in columns)
    cells = [
        f'<th scope="row">{link} <small>{entry.kind}{ended}</small></th>',
        *[f'<td class="wide">{safe(entry.title, 200)}</td>'] * titled,
        *(f"<td>{breakable(safe(values.get(column, '')))}</td>" for column in columns),
        f'<td class="wide">{breakable(safe(others, 200))}</td>' if others else "<td></td>",
        f"<td>{safe(entry.when[:19].replace('T', ' '))}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"


def breakable(text: str) -> str:
    """Let a line end after marks within words, and before the dots between words, of escaped text."""
    return re.sub(r"[,=_(]|(?<=[a-z])(?=\.[a-z])", r"\g<0><wbr>", text)


def safe(text: str, most: int = 80) -> str:
    """Return a text as HTML shows it: on one line, cut, controls and marks escaped."""
    shown = text if text.isascii() and text.isprintable() and len(text) <= most else plain(text, most)
    return shown.translate(ESCAPED)
