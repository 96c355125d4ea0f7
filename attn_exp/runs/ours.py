"""Overwrite protection: only files that carry our mark may be replaced.

A page is marked by its generator, a table by its first line, and the folder of a sweep by its manifest and parts.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from attn_exp import machine
from attn_exp.errors import UserError

BEGINNING = 4096
"""Bytes of a page that are searched; the mark is before the style."""
GENERATOR = '<meta name="generator" content="attn-exp {}">'
SEAL = re.compile(rb'<meta name="attn-exp-table" content="([0-9a-f]{64})">')
"""The hash of the grades table in the page of a class."""

BEGINS_SWEEP = {"lock", "parts"}
"""Contents of the folder of a sweep that ended before it had a manifest."""


def check_mark(path: Path, mark: str) -> None:
    """Refuse to replace a file without our mark; a link is replaced, and its target is left alone.

    Raises:
        UserError: somebody else's file is there.
        OSError: what is there cannot be read.
    """
    if os.path.lexists(path) and not path.is_symlink():
        with machine.opened(path) as file:
            if mark.encode() not in file.read(BEGINNING):
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


def check_sweep(folder: Path) -> None:
    """Refuse a folder for a sweep that contains files of other origin.

    Raises:
        UserError: the folder is not that of a sweep.
    """
    names = {name for name in os.listdir(folder) if not name.startswith(".")} if folder.is_dir() else set()
    if not (names <= BEGINS_SWEEP or {"manifest.json", "parts"} <= names):
        refuse(folder)


def refuse(path: Path) -> None:
    """Raise the error for a file that is not ours.

    Raises:
        UserError: always.
    """
    raise UserError(f"{path}: is there already and was not written by attn-exp, so it stays; rename it or remove it")
