"""Overwrite protection: only files that carry our mark may be replaced.

A page is marked by its generator, a table by its first line, a report by the command in it, the folder of a sweep by
its manifest and parts, and `latest` by pointing to a run in the same folder.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path, PurePath

from attn_exp import machine
from attn_exp.errors import UserError

BEGINNING = 4096
"""Bytes of a page that are searched; the mark is before the style."""
GENERATOR = '<meta name="generator" content="attn-exp {}">'
SEAL = re.compile(rb'<meta name="attn-exp-table" content="([0-9a-f]{64})">')
"""The hash of the grades table in the page of a class."""

COMMAND = "python -m attn_exp"
"""Text in every report: how to repeat it."""
BEGINS_SWEEP = {"lock", "parts", "parts-of-other-versions"}
"""Contents of the folder of a sweep that ended before it had a manifest."""
MOST_BYTES = 64 * 2**20


def check_mark(path: Path, mark: str, most: int = BEGINNING) -> None:
    """Refuse to replace a file without our mark; a link is replaced, and its target is left alone.

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
    """Refuse to replace the table or page of a class that is not ours, or a table that was edited since.

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
    """Refuse to replace a report of a run or a sweep that contains no command; raises as `check_mark`."""
    for name in ("report.html", "report.md"):
        check_mark(folder / name, COMMAND, MOST_BYTES)


def check_latest(link: Path) -> None:
    """Refuse to replace `latest` if it is no link, or text file, that points to a run in the same folder.

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
    """Refuse a folder for a sweep that contains files of other origin.

    Raises:
        UserError: the folder is not that of a sweep, or its report is not ours.
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
    """Raise the error for a file that is not ours.

    Raises:
        UserError: always.
    """
    raise UserError(f"{path}: is there already and was not written by attn-exp, so it stays; rename it or remove it")
