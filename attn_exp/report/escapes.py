"""Escape users' strings and format numbers for display on one line. Nothing is executed; no character is hidden.

`plain` escapes strings for terminals, and `label` for labels. `md`, `html` and `latex` escape them for these formats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence


def visible(text: str) -> str:
    """Return a string on one line, with unprintable characters escaped."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def plain(text: str, most: int = 48) -> str:
    """Return a string that is safe in a terminal: one line of at most `most` characters without control characters."""
    safe = visible(text[: most + 1])
    return safe if len(safe) <= most else safe[: most - 3] + "..."


def label(token: str, most: int = 18) -> str:
    """Return a token as a label on one line, with unprintable characters escaped; a long label is cut in the middle."""
    safe = visible(token[:200])
    if len(safe) <= most and len(token) <= 200:
        return safe
    ending = "".join(letter if letter.isprintable() else "?" for letter in token[-5:])
    return f"{safe[: most - 6]}…{ending}"


MARKS = re.compile(r"([\\`*{}\[\]<>|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^ *[#+=-])")
"""Markdown syntax: special characters, `_` at the edge of a word, and the start of a heading, a list or a rule."""

LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",
    "*": "{*}",
    "−": "$-$",
    "→": r"$\to$",
    "×": r"$\times$",
} | {mark: f"\\{mark}" for mark in "&%$#_{}"}
"""LaTeX syntax; `[` and `*` are special only at the start of a line in a table."""

EVERY_LATEX = re.compile(r"[ -~À-ÿ·±µ°–—‘’“”…−→]+")
"""Text that every LaTeX engine can typeset in its default fonts, even pdfLaTeX."""


def md(text: str) -> str:
    """Escape a string for Markdown, on one line."""
    if type(text) is str and text.isalnum():
        return text
    line = re.sub(r"^( *\d+)([.)])(?= |$)", r"\1\\\2", MARKS.sub(r"\\\1", visible(str(text))))
    return line.replace("&", "&amp;")


ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
"""The characters that Python's `html.escape` replaces; importing `html` would load a table of all named characters."""


def html(text: str, most: int = 80) -> str:
    """Escape a string for HTML, on one line, cut to `most` characters."""
    return plain(text, most).translate(ESCAPED)


LONGEST = 2000
"""Maximum number of characters of a string in LaTeX; no caption is that long."""


def latex(text: str) -> str:
    """Escape a string for LaTeX, on one line.

    LuaLaTeX and XeLaTeX show all characters. pdfLaTeX shows the code point of a character that its fonts lack.
    """
    parts = list[str]()
    for piece in filter(None, re.split(f"({EVERY_LATEX.pattern})", plain(text, most=LONGEST))):
        if EVERY_LATEX.fullmatch(piece):  # LaTeX would merge two hyphens, commas or apostrophes
            parts.append(re.sub(r"([-,'])(?=\1)", r"\1{}", "".join(LATEX.get(letter, letter) for letter in piece)))
        else:
            codes = " ".join(f"U+{ord(letter):04X}" for letter in piece)
            parts.append(rf"\ifdefined\Umathchar {piece}\else {codes}\fi{{}}")
    return "".join(parts)


NUMBER = r"-?[0-9.]+(e[+-]?[0-9]+)?"
BLOCKS = "[█▒·]+"
"""A row of a mask drawn with block characters."""

IN_A_TABLE = rf"[+−]?{NUMBER}%?( ± [0-9.e+-]+| \([0-9.e+-]+\))?|-|-?inf|"
"""A cell of a column of numbers: a number such as `0.81 ± 0.05` or `0.81`, a `-`, `inf`, or nothing."""

SIGN = re.compile(r"(?<!\w)-(?=[0-9.i])")
"""A hyphen that is the sign of a number, but not of an exponent."""


def brief(value: object) -> str:
    """Format a value briefly: booleans as yes or no, floats with four decimals, one decimal or an exponent."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "-"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"
    return f"{value:.1e}"


def is_number(text: str) -> bool:
    return re.fullmatch(NUMBER, text) is not None


def kinds(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the kind of each column of a table: `number`, `blocks` or `word`, which is also its CSS class."""
    return [column_kind(column) for column in zip(*lines, strict=True)]


def column_kind(column: Sequence[str]) -> str:
    if all(re.fullmatch(IN_A_TABLE, cell) for cell in column):
        return "number"
    return "blocks" if all(re.fullmatch(BLOCKS, cell) for cell in column) else "word"


def minus(cell: str) -> str:
    """Return a cell of a page's table with a minus sign instead of a hyphen; files and terminals keep the hyphen."""
    return SIGN.sub("−", cell) if re.fullmatch(IN_A_TABLE, cell) else cell


def decimal(value: float, places: int) -> str:
    """Format a number with `places` decimals, and with a minus sign instead of a hyphen."""
    if not math.isfinite(value):
        return "−∞" if value < 0 else str(value)
    return f"{value:.{places}f}".replace("-", "−")
