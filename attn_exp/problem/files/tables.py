"""Tables of text: cells parted by commas, .csv, by tabs, .tsv, or by spaces or commas, .txt.

The first column may hold the names of tokens, the first line those of columns. pandas stays out: loading it takes as
long as a whole run, and what is no number becomes a text there, without a word about its row and column.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from attn_exp import machine, parsing
from attn_exp.errors import UserError, brief
from attn_exp.problem.files.format import MOST_TEXT, Entry, Format, Held
from attn_exp.problem.matrices import array


def look_at_csv(path: Path, said: str) -> Held:
    """Return the one array of a table, and the names in its first column where those are no numbers."""
    rows = split_cells(read_text(path))
    if rows and len(rows[0]) == 1 and len(rows[0][0].replace(";", " ").split()) > 1:
        raise UserError(f"{said}: its first line has no comma, {brief(rows[0][0], 40)!r}; put one after each number")
    return table(rows, said)


def look_at_tsv(path: Path, said: str) -> Held:
    """Return the one array of a table, and the names in its first column where those are no numbers."""
    return table([line.split("\t") for line in read_text(path).splitlines() if line.strip()], said)


def look_at_txt(path: Path, said: str) -> Held:
    """Return the one array of a text, as `np.savetxt` writes it, or with a word before each vector; # is a remark."""
    content = read_text(path)
    if "," in content.partition("\n")[0]:
        return table(split_cells(content), said)
    lines = [line for line in content.splitlines() if line.strip() and not line.startswith("# ")]
    return table([line.split() for line in lines], said)


def read_text(path: Path) -> str:
    """Return a file of text; the mark that some programs begin one with is left out."""
    return parsing.decoded(machine.read(path, MOST_TEXT)).removeprefix("\ufeff")


def split_cells(content: str) -> list[list[str]]:
    """Return the cells of each line that has any."""
    rows = parsing.parse_csv(content, most=MOST_TEXT, no_blanks=True)
    return [row for row in rows if any(cell.strip() for cell in row)]


def table(rows: Sequence[Sequence[str]], said: str) -> Held:
    """Return the numbers of a table, and the names in its first column where those are no numbers."""
    rows, indexed = below_head(rows)
    named = bool(rows) and (indexed or not all(is_number(row[0]) for row in rows))
    tokens = tuple(row[0].strip() for row in rows) if named else None
    cells = [[float(cell) if is_number(cell) else cell for cell in row[named:]] for row in rows]
    shape = (len(cells), len(cells[0])) if cells and cells[0] else ()  # reading says what is wrong with an empty one
    return Held({"": Entry(shape, "float64", partial(array, cells, said))}, tokens)


def below_head(rows: Sequence[Sequence[str]]) -> tuple[Sequence[Sequence[str]], bool]:
    """Return the lines below one that names columns, and whether it says that the first holds names.

    No number stands in such a line and numbers alone below it, but for the first column; or it begins with an empty
    cell, as pandas writes it above the names of rows; or it counts the columns; or, as word2vec writes it, it holds the
    number of words and that of their numbers.
    """
    first, below = rows[:1], rows[1:]
    if not below or len(first[0]) < 2:
        return rows, False
    if counts(first[0], below) or list(first[0]) == [str(len(below)), str(len(below[0]) - 1)]:
        return below, False
    if not first[0][0].strip() and all(row[0].strip() for row in below):
        return below, True
    words = not any(is_number(cell) for cell in first[0])
    head = words and all(len(row) > 1 and all(map(is_number, row[1:])) for row in below)
    return (below, False) if head else (rows, False)


def counts(head: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Say whether a line counts three columns or more, as pandas does that have no names: 0, 1, 2 above 0.5, 2.0, 1e-3.

    Below it no number may be whole, or the line could be one of them.
    """
    start = 0 if is_number(head[0]) else 1
    columns = [cell.strip() for cell in head[start:]]
    counted = len(columns) > 2 and columns == [str(number) for number in range(len(columns))]
    return counted and not any(cell.strip().lstrip("+-").isdecimal() for row in below for cell in row[start:])


def is_number(cell: str) -> bool:
    """Say whether a cell holds a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


FORMATS = {"csv": Format(look_at_csv), "tsv": Format(look_at_tsv), "txt": Format(look_at_txt)}
