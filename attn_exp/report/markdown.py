"""Texts and tables in Markdown, shown as they are whatever they contain."""

from __future__ import annotations

import re
from collections.abc import Sequence


def piped(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, the first column to the left."""
    rule = [":--", *("--:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in ([md(each) for each in head], rule, *map(mds, lines)))


def md(text: str) -> str:
    """Return a text that Markdown shows as it is: on one line, marks escaped."""
    line = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in str(text))
    escaped = re.sub(r"([\\`*{}\[\]<>|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[#+-])", r"\\\1", line)
    return escaped.replace("&", "&amp;")


def mds(texts: Sequence[str]) -> list[str]:
    return [md(each) for each in texts]


def fenced(text: str) -> str:
    """Return a block of code; its fence is longer than any run of backticks in it."""
    longest = max((len(each) for each in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
