"""What every page has: inline style sheets, inline scripts and a policy. Also the page with the list of runs.

Each run rewrites the list of runs, and a run without a report does not load Jinja. So that page is the only one that
uses Python's string templates instead, and its text is escaped here.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple
from urllib.parse import quote

from attn_exp.report.escapes import html

TEMPLATES = Path(__file__).with_name("templates")


def template_text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def inline(*texts: str) -> str:
    return "\n".join(("", *(line.lstrip() for text in texts for line in text.splitlines()), ""))


REMARK = re.compile(r"""^(//.*|/\*\*.*\*/)\n|(?<=[;{},)\]]) // [^"'`\n]*$""", re.MULTILINE)
"""A comment of a script: a whole line, or the end of a line after a statement."""

IN_STYLES = re.compile(r"/\*.*?\*/|\s*([{};,>])\s*|(?<=:)[ ]+", re.DOTALL)
"""The parts that a style sheet does not need: comments, and spaces around punctuation."""


def styles(*texts: str) -> str:
    return IN_STYLES.sub(lambda found: found[1] or "", "\n".join(texts))


def scripts(*names: str) -> str:
    return inline('"use strict";') + REMARK.sub("", inline(*map(template_text, names)))


def policy(style: str, script: str = "") -> str:
    """Return a Content-Security-Policy that allows this inline style sheet and this inline script, and nothing else.

    A browser then loads nothing from anywhere; pictures are embedded. Source: W3C, "Content Security Policy Level 3",
    sections 6.1, 6.7 and 8.4.
    """
    scripts = csp_hash(script) if script else "'none'"
    return (
        f"default-src 'none'; style-src {csp_hash(style)}; script-src {scripts}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def csp_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


MOST_COLUMNS = 6
"""Maximum number of settings that get a column of their own; those that most runs set come first."""


class Listed(NamedTuple):
    """One run or sweep in the list.

    `kind`: such as `run` or `sweep`.
    `page`: the path of its page, relative to the list.
    `when`: when it started.
    `ended`: how it ended, if it did not succeed.
    `words`: its settings, such as `head=2`.
    `problem`: why its folder cannot be read; empty if it can.
    """

    name: str
    kind: str
    page: str
    when: str
    ended: str = ""
    title: str = ""
    words: Sequence[str] = ()
    problem: str = ""


def index_page(entries: Sequence[Listed]) -> str:
    """Return the page with the table of runs and sweeps; its script sorts and filters the table."""
    settings = [dict(setting.partition("=")[::2] for setting in entry.words) for entry in entries]
    readable = [values for entry, values in zip(entries, settings, strict=True) if not entry.problem]
    first_settings = readable[0] if len(entries) > 1 and readable else {}
    common = {
        key: value for key, value in first_settings.items() if all(values.get(key) == value for values in readable)
    }
    counts = Counter(key for values in readable for key, value in values.items() if value and key not in common)
    columns = sorted(counts, key=lambda key: (-counts[key], key))[:MOST_COLUMNS] if len(entries) > 1 else []
    has_titles = any(entry.title for entry in entries)
    column_heads = ["run", *(["title"] if has_titles else []), *columns, "other settings" if columns else "settings"]
    differing_settings = [{key: value for key, value in values.items() if key not in common} for values in settings]
    rows = [
        table_row(entry, values, columns, has_titles) for entry, values in zip(entries, differing_settings, strict=True)
    ]
    note = "" if entries else "No runs yet: python -m attn_exp computes the first one."
    if common:
        note = f"The same for all: {' '.join(map(format_setting, common.items()))}."
    style = styles(template_text("report.css"), template_text("index.css"))
    script = scripts("index.js")
    return Template(template_text("index.html")).substitute(
        policy=policy(style, script),
        style=style,
        script=script,
        title="Runs and sweeps",
        filter="Show rows that contain all of these words",
        count=f'<output id="shown">{len(entries):,}</output> of {len(entries):,}.',
        common=html(note, 1000),
        heads="".join(f'<th scope="col">{allow_breaks(html(name))}</th>' for name in column_heads),
        rows="\n".join(rows),
    )


def format_setting(setting: tuple[str, str]) -> str:
    return "=".join(setting) if setting[1] else setting[0]


def table_row(entry: Listed, values: Mapping[str, str], columns: Sequence[str], has_titles: bool) -> str:
    address = quote(entry.page, errors="backslashreplace")
    link = f'<a href="{address}">{html(entry.name)}</a>'
    status = f" ({html(entry.ended)})" if entry.ended else ""
    other_settings = entry.problem or " ".join(
        format_setting(setting) for setting in values.items() if setting[0] not in columns
    )
    cells = [
        f'<th scope="row">{link} <small>{entry.kind}{status}</small></th>',
        *([f'<td class="wide">{html(entry.title, 200)}</td>'] if has_titles else []),
        *(f"<td>{allow_breaks(html(values.get(column, '')))}</td>" for column in columns),
        f'<td class="wide">{allow_breaks(html(other_settings, 200))}</td>' if other_settings else "<td></td>",
        f"<td>{html(entry.when[:19].replace('T', ' '))}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"


def allow_breaks(text: str) -> str:
    """Return escaped text in which a browser may break lines after punctuation inside words and before inner dots."""
    return re.sub(r"[,=_(]|(?<=[a-z])(?=\.[a-z])", r"\g<0><wbr>", text)
