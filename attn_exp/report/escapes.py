"""Texts of users and numbers as a reader sees them: on one line, and nothing in them is obeyed or hidden.

A terminal and a label show a text `plain`; Markdown, HTML and LaTeX have a function each for what they would obey.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence


def visible(text: str) -> str:
    """Return a text on one line, with every character that is no letter, mark or space as its number."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def plain(text: str, most: int = 48) -> str:
    """Return a text that a terminal shows and never obeys: on one line, cut to `most` characters, controls escaped."""
    safe = visible(text[: most + 1])
    return safe if len(safe) <= most else safe[: most - 3] + "..."


def label(token: str, most: int = 18) -> str:
    """Return a token as a label: on one line, controls escaped, the middle left out where it is long."""
    safe = visible(token[:200])
    if len(safe) <= most and len(token) <= 200:
        return safe
    ending = "".join(letter if letter.isprintable() else "?" for letter in token[-5:])
    return f"{safe[: most - 6]}…{ending}"


MARKS = re.compile(r"([\\`*{}\[\]<>|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^ *[#+=-])")
"""What Markdown would obey: marks anywhere, `_` beside a word, and what begins a heading, a list or a rule."""

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
"""What LaTeX would obey; `[` and `*` are so only where a line of a table begins."""

EVERY_LATEX = re.compile(r"[ -~À-ÿ·±µ°–—‘’“”…−→]+")
"""Text that pdfLaTeX sets with its usual fonts, as the engines that know all of Unicode do."""


def md(text: str) -> str:
    """Return a text that Markdown shows as it is: on one line, marks escaped."""
    if type(text) is str and text.isalnum():
        return text
    line = re.sub(r"^( *\d+)([.)])(?= |$)", r"\1\\\2", MARKS.sub(r"\\\1", visible(str(text))))
    return line.replace("&", "&amp;")


ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
"""As `html.escape` has it, whose module every run would wait for: it brings all names that HTML has for letters."""


def html(text: str, most: int = 80) -> str:
    """Return a text that HTML shows as it is: on one line, cut to `most` characters, marks escaped."""
    return plain(text, most).translate(ESCAPED)


LONGEST = 2000
"""Characters of a text that a paper shows: more than any caption has."""


def latex(text: str) -> str:
    """Return a text that LaTeX sets as it is, on one line.

    Characters that pdfLaTeX's fonts lack stand there by their numbers; LuaLaTeX and XeLaTeX set them.
    """
    parts = list[str]()
    for piece in filter(None, re.split(f"({EVERY_LATEX.pattern})", plain(text, most=LONGEST))):
        if EVERY_LATEX.fullmatch(piece):  # two hyphens, commas or apostrophes would become one sign
            parts.append(re.sub(r"([-,'])(?=\1)", r"\1{}", "".join(LATEX.get(letter, letter) for letter in piece)))
        else:
            codes = " ".join(f"U+{ord(letter):04X}" for letter in piece)
            parts.append(rf"\ifdefined\Umathchar {piece}\else {codes}\fi{{}}")
    return "".join(parts)


NUMBER = r"-?[0-9.]+(e[+-]?[0-9]+)?"
BLOCKS = "[█▒·]+"
"""A row of the picture of a mask."""

IN_A_TABLE = rf"[+−]?{NUMBER}%?( ± [0-9.e+-]+| \([0-9.e+-]+\))?|-|-?inf|"

SIGN = re.compile(r"(?<!\w)-(?=[0-9.i])")
"""A hyphen that is the sign of a number, not of its exponent."""


def brief(value: object) -> str:
    """Write a value in few characters: yes and no, floats in four significant digits."""
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
    """Say whether a cell of a table for papers is a number."""
    return re.fullmatch(NUMBER, text) is not None


def kinds(lines: Sequence[Sequence[str]]) -> list[str]:
    """Say of each column of a table whether it holds numbers, blocks of a mask, or words: where they stand."""
    return [kind(column) for column in zip(*lines, strict=True)]


def kind(column: Sequence[str]) -> str:
    """Say what a column holds, in the word that the style sheet knows."""
    if all(re.fullmatch(IN_A_TABLE, cell) for cell in column):
        return "number"
    return "blocks" if all(re.fullmatch(BLOCKS, cell) for cell in column) else "word"


def minus(cell: str) -> str:
    """Write a number in a page's table with a minus sign as wide as a plus; files and terminals keep the hyphen."""
    return SIGN.sub("−", cell) if re.fullmatch(IN_A_TABLE, cell) else cell


def decimal(value: float, places: int) -> str:
    """Write a number with so many decimals, and a minus sign as wide as a plus."""
    if not math.isfinite(value):
        return "−∞" if value < 0 else str(value)
    return f"{value:.{places}f}".replace("-", "−")
