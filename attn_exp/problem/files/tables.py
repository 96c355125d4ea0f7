"""Tables of text: .csv, .tsv and .txt, as spreadsheets, pandas, NumPy and makers of word vectors write them.

The first column may hold the names of tokens, the first line those of columns. pandas stays out: loading it takes as
long as a whole run, and what is no number becomes a text there, without a word about its row and column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from attn_exp import machine, parsing
from attn_exp.errors import UserError, brief
from attn_exp.problem.files.cells import BLANK, COMMA, SEMICOLON, TAB, is_name, is_number, names_columns, rows_of
from attn_exp.problem.files.format import MOST_TEXT, Entry, Format, Held
from attn_exp.problem.matrices import array


def look_at_csv(path: Path, said: str) -> Held:
    """Return the one array of a table, and the names in its first column where those are no numbers."""
    rows = rows_of(read_text(path), (COMMA, SEMICOLON, TAB), MOST_TEXT)
    if rows and len(rows[0]) == 1 and len(rows[0][0].split()) > 1:
        raise UserError(f"{said}: its first line has no comma, {brief(rows[0][0], 40)!r}; put one after each number")
    return table(rows, said)


def look_at_tsv(path: Path, said: str) -> Held:
    """Return the one array of a table, and the names in its first column where those are no numbers."""
    return table(rows_of(read_text(path), (TAB,), MOST_TEXT), said)


def look_at_txt(path: Path, said: str) -> Held:
    """Return the one array of a text, as `np.savetxt` writes it, or with a word before each vector; # is a remark."""
    content = re.sub("^# .*$", "", read_text(path), flags=re.MULTILINE)
    return table(rows_of(content, (BLANK, COMMA, SEMICOLON, TAB), MOST_TEXT), said)


def read_text(path: Path) -> str:
    """Return a file of text; the mark that some programs begin one with is left out."""
    return parsing.decoded(machine.read(path, MOST_TEXT)).removeprefix("\ufeff")


def table(rows: Sequence[Sequence[str]], said: str) -> Held:
    """Return the numbers of a table, and the names in its first column where those are no numbers."""
    rows, indexed = below_head(rows, said)
    named = bool(rows) and (indexed or holds_words([row[0] for row in rows]))
    tokens = tuple(row[0] for row in rows) if named else None
    cells = [[float(cell) if is_number(cell) else cell for cell in row[named:]] for row in rows]
    shape = (len(cells), len(cells[0])) if cells and cells[0] else ()  # reading says what is wrong with an empty one
    return Held({"": Entry(shape, "float64", partial(array, cells, said))}, tokens)


def holds_words(column: Sequence[str]) -> bool:
    """Say whether a first column holds words: half of it or more, and not only signs beside numbers.

    What has a digit and is no name, such as 50% above 1, is a number that cannot be read, and no word.
    """
    numbers = [is_number(cell) or (any(map(str.isdigit, cell)) and not is_name(cell)) for cell in column]
    return 2 * sum(numbers) <= len(column) and (not any(numbers) or any(map(is_name, column)))


def below_head(rows: Sequence[Sequence[str]], said: str) -> tuple[Sequence[Sequence[str]], bool]:
    """Return the lines below one that names columns, and whether it says that the first holds names.

    As word2vec writes it, a first line may also hold the number of words and that of their numbers.

    Raises:
        UserError: a first line that holds neither names nor numbers.
    """
    if len(rows) < 2:
        return rows, False
    first, below = rows[0], rows[1:]
    words = not all(is_number(row[0]) for row in below)
    if words and list(first) == [str(len(below)), str(len(below[0]) - 1)]:
        return below, False
    if not names_columns(first, below, said):
        if len(first) > 1 and not first[0]:
            raise UserError(f"{said}: line 1, column 1 is empty beside numbers; name the row, or all columns")
        return rows, False
    return below, not first[0] and all(row[0] for row in below)


FORMATS = {"csv": Format(look_at_csv), "tsv": Format(look_at_tsv), "txt": Format(look_at_txt)}
