"""What may be replaced: what carries our mark. What somebody else has put at the place of a file of ours stays there.

A page's mark is its generator, a table's its first line, a report's the command that it tells, the mark of a sweep's
folder its manifest and its parts, and that of `latest` that it leads to a run beside it.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path, PurePath

from attn_exp import machine
from attn_exp.errors import UserError

BEGINNING = 4096
"""Bytes of a page that are looked at; what marks it stands before its style."""
GENERATOR = '<meta name="generator" content="attn-exp {}">'
SEAL = re.compile(rb'<meta name="attn-exp-table" content="([0-9a-f]{64})">')
"""What the page of a class says of its table as it was written."""

COMMAND = "python -m attn_exp"
"""What stands in every report: how to repeat it."""
BEGINS_SWEEP = {"lock", "parts", "parts-of-other-versions"}
"""What is in the folder of a sweep that was ended before it had a manifest."""
MOST_BYTES = 64 * 2**20


def check_mark(path: Path, mark: str, most: int = BEGINNING) -> None:
    """Refuse to replace a file that does not carry our mark; a link is replaced, what it leads to is left alone.

    Raises:
        UserError: somebody else's file is there.
        OSError: what is there cannot be read.
    """
    if os.path.lexists(path) and not path.is_symlink():
        with machine.opened(path) as file:
            if mark.encode() not in file.read(most):
                refuse(path)


def check_page(path: Path, kind: str) -> None:
    """Refuse to replace a page that is not one of ours of this kind; raises as `check_mark`."""
    check_mark(path, GENERATOR.format(kind))


def check_grades(folder: Path, head: str) -> None:
    """Refuse to replace the table or the page of a class that somebody else wrote, or a table changed since.

    Raises:
        UserError: such a file is there.
        OSError: what is there cannot be read.
    """
    page, table = folder / "class.html", folder / "grades.csv"
    check_page(page, "grades")
    check_mark(table, head)
    if page.is_file() and table.is_file():
        seal = SEAL.search(machine.read(page))
        if seal and hashlib.sha256(machine.read(table)).hexdigest() != seal[1].decode():
            raise UserError(f"{table}: has been changed since it was written, so it stays; rename it or remove it")


def check_report(folder: Path) -> None:
    """Refuse to replace a report of a run or a sweep that tells no command; raises as `check_mark`."""
    for name in ("report.html", "report.md"):
        check_mark(folder / name, COMMAND, MOST_BYTES)


def check_latest(link: Path) -> None:
    """Refuse to replace what is no link, or text, that leads to a run beside it.

    Raises:
        UserError: something else is there.
    """
    if os.path.lexists(link):
        try:
            target = os.readlink(link) if link.is_symlink() else machine.read_text(link, BEGINNING)
        except (OSError, ValueError):
            target = ""
        if PurePath(target.strip()).parts[:1] != ("runs",):
            refuse(link)


def check_sweep(folder: Path) -> None:
    """Refuse a folder for a sweep in which somebody else's files are.

    Raises:
        UserError: there are some, and none of a sweep, or a report that is not ours.
        OSError: a report that cannot be read.
    """
    try:
        names = {name for name in os.listdir(folder) if not name.startswith(".")}
    except (FileNotFoundError, NotADirectoryError):
        return
    if not (names <= BEGINS_SWEEP or {"manifest.json", "parts"} <= names):
        refuse(folder)
    check_report(folder)


def refuse(path: Path) -> None:
    """Say that something is not ours.

    Raises:
        UserError: always.
    """
    raise UserError(f"{path}: is there already and was not written by attn-exp, so it stays; rename it or remove it")
