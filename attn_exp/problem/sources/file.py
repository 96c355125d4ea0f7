"""x from a file: a NumPy array, or a table whose first column may hold the names of the tokens."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attn_exp.errors import UserError, brief
from attn_exp.problem.matrices import array, finite
from attn_exp.problem.sources.source import Array, Asked, Source, Vectors


def read(asked: Asked) -> Vectors:
    """Read a .npy file, or any other as comma-separated values."""
    path, key = Path(asked.own), f"embeddings.file={asked.own}"
    try:
        if not path.is_file() and path.exists():
            raise UserError(f"{key}: cannot be read (it is no file)")
        return Vectors(matrix(opened(path), key)) if path.suffix == ".npy" else table(lines(path), key)
    except (OSError, ValueError, EOFError, csv.Error) as error:
        if isinstance(error, UserError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason = "no NumPy file of plain numbers" if "pickle" in reason else reason
        raise UserError(f"{key}: cannot be read ({reason})") from error


def opened(path: Path, *, whole: bool = True) -> Any:
    """Open a NumPy file; objects in it, which could run code, are not read."""
    return np.load(path, mmap_mode=None if whole else "r", allow_pickle=False)


def matrix(held: Any, key: str) -> Array:
    """Return what a NumPy file holds as a matrix of float64."""
    if not isinstance(held, np.ndarray):
        raise UserError(f"{key}: cannot be read (it holds several arrays; save the one that is x as .npy)")
    if held.dtype.kind not in "iuf":
        raise UserError(f"{key} holds {held.dtype.name}; expected real numbers")
    if held.ndim != 2 or not held.size:
        raise UserError(f"{key} holds an array of shape {list(held.shape)}; expected rows and columns, such as [3,4]")
    return finite(held.astype(np.float64), key)


def lines(path: Path) -> list[list[str]]:
    """Return the cells of each line that has any; the mark that some programs begin a file with is left out."""
    with path.open(newline="", encoding="utf-8-sig") as text:
        return [row for row in csv.reader(text, skipinitialspace=True) if any(cell.strip() for cell in row)]


def table(rows: Sequence[Sequence[str]], key: str) -> Vectors:
    """Return the numbers of a table, and the names in its first column where those are no numbers."""
    if rows and len(rows[0]) == 1 and len(rows[0][0].split()) > 1:
        raise UserError(f"{key}: its first line has no comma, {brief(rows[0][0], 40)!r}; put one after each number")
    if is_header(rows):
        raise UserError(f"{key}: its first line, {brief(','.join(rows[0]), 40)!r}, is a header; leave it out")
    named = bool(rows) and not all(is_number(row[0]) for row in rows)
    tokens = tuple(row[0].strip() for row in rows) if named else None
    cells = [[float(cell) if is_number(cell) else cell for cell in row[named:]] for row in rows]
    return Vectors(array(cells, key), tokens)


def is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Say whether a first line names columns: no number in it, and numbers alone below it but for the first column."""
    first, below = rows[:1], rows[1:]
    words = all(not is_number(cell) for row in first for cell in row)
    return (
        bool(below)
        and words
        and all(len(row) > 1 or is_number(row[0]) for row in below)
        and len(first[0]) > 1
        and all(is_number(cell) for row in below for cell in row[1:])
    )


def is_number(cell: str) -> bool:
    """Say whether a cell holds a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def size(asked: Asked) -> tuple[int, int] | None:
    """Return the shape that stands at the head of a NumPy file; a table tells its own only when it is read."""
    if Path(asked.own).suffix != ".npy" or not Path(asked.own).is_file():
        return None
    try:
        held = opened(Path(asked.own), whole=False)
    except (OSError, ValueError, EOFError):
        return None  # reading it says why
    return (held.shape[0], held.shape[1]) if isinstance(held, np.ndarray) and held.ndim == 2 else None


SOURCE = Source(read=read, size=size, turns=True)
