"""Texts that a format shows and never obeys: one function each for Markdown, HTML and LaTeX."""

from __future__ import annotations

import re
from html import escape

from attn_exp.report.plain import plain, visible

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
} | {mark: f"\\{mark}" for mark in "&%$#_{}"}
"""What LaTeX would obey; `[` and `*` are so only where a line of a table begins."""

EVERY_LATEX = re.compile(r"[ -~À-ÿ·±µ°–—‘’“”…−]+")
"""Text that pdfLaTeX sets with its usual fonts, as the engines that know all of Unicode do."""


def md(text: str) -> str:
    """Return a text that Markdown shows as it is: on one line, marks escaped."""
    if type(text) is str and text.isalnum():
        return text
    line = re.sub(r"^( *\d+)([.)])(?= |$)", r"\1\\\2", MARKS.sub(r"\\\1", visible(str(text))))
    return line.replace("&", "&amp;")


def html(text: str, most: int = 80) -> str:
    """Return a text that HTML shows as it is: on one line, cut to `most` characters, marks escaped."""
    return escape(plain(text, most))


def latex(text: str) -> str:
    """Return a text that LaTeX sets as it is, on one line.

    Characters that pdfLaTeX's fonts lack stand there by their numbers; LuaLaTeX and XeLaTeX set them.
    """
    return "".join(
        letters(piece) if EVERY_LATEX.fullmatch(piece) else other_letters(piece)
        for piece in re.split(f"({EVERY_LATEX.pattern})", plain(text, most=200))
        if piece
    )


def letters(text: str) -> str:
    """Escape letters, and keep two hyphens, commas or apostrophes from becoming one sign."""
    return re.sub(r"([-,'])(?=\1)", r"\1{}", "".join(LATEX.get(letter, letter) for letter in text))


def other_letters(text: str) -> str:
    """Return letters that only some engines know, and their numbers for the others."""
    codes = " ".join(f"U+{ord(letter):04X}" for letter in text)
    return rf"\ifdefined\Umathchar {text}\else {codes}\fi{{}}"
