"""Text files: JSON, and tables as written by spreadsheets, pandas, NumPy and word vector tools.

Cells are separated by commas, semicolons, tabs or spaces, whichever gives lines of equal length with mostly numeric
cells. Many European spreadsheets write `1,5;2,5`: if commas do not separate cells, a comma in a number is its decimal
point. Anything that only looks like a number, such as `1/2`, `50%`, `0x10` or `1 000`, is neither a number nor a name.
The first column may hold token names, the first line column names.

pandas is not used: importing it takes as long as a whole run, and it silently turns invalid numbers into strings,
without their row and column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attn_exp import machine
from attn_exp.errors import UserError, brief
from attn_exp.problem.drawing import parse_matrix
from attn_exp.problem.files import MOST_TEXT, TOKENS, Contents, Entry, read_text, unreadable_entry

Rows = list[list[str]]

NUMBER = re.compile(r"[-+]?(?:(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|inf(inity)?|nan)", re.ASCII | re.IGNORECASE)
DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+(e[-+]?\d+)?", re.ASCII | re.IGNORECASE)
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")
MINUS = re.compile('(?<![^\\s,;"])[\u2212\u2013](?=[\\d.,i])')
"""A typographic minus, or a dash as word processors write it, at the start of a number."""

NO_NAME = frozenset({"null", "none", "na", "n/a", "nan", "inf", "-inf", "infinity"})
"""Words that stand for a missing or infinite number, so they cannot name a column."""

COMMA, SEMICOLON, TAB, BLANK = ",", ";", "\t", " "
SEPARATORS = {".csv": (COMMA, SEMICOLON, TAB), ".tsv": (TAB,), ".txt": (BLANK, COMMA, SEMICOLON, TAB)}
"""The possible separators by the suffix of the file, the likeliest first."""

SAMPLE = 50
"""The number of lines from which the separator is guessed."""


def list_contents(path: Path, label: str) -> Contents:
    """Read a JSON file, or a table and the names in its first column, if it has any.

    In text separated by spaces, as `np.savetxt` writes it, # starts a comment.
    """
    if path.suffix.lower() == ".json":
        return read_json_arrays(path)
    text, separators = read_text(path), SEPARATORS[path.suffix.lower()]
    rows = parse_rows(re.sub("^# .*$", "", text, flags=re.MULTILINE) if BLANK in separators else text, separators)
    if COMMA in separators and rows and len(rows[0]) == 1 and len(rows[0][0].split()) > 1:
        raise UserError(f"{label}: its first line has no comma, {brief(rows[0][0], 40)!r}; put one between numbers")
    return read_table(rows, label)


def read_table(rows: Sequence[Sequence[str]], label: str) -> Contents:
    """Return the numbers of a table, and the names in its first column, if it has any.

    The first line may give the number of words and the number of dimensions, as in word2vec files.
    """
    has_index = False
    if len(rows) > 1:
        first, below = rows[0], rows[1:]
        is_word2vec = list(first) == [str(len(below)), str(len(below[0]) - 1)]
        if is_word2vec and not all(is_number(row[0]) for row in below):
            rows = below
        elif has_column_names(first, below, label):
            rows, has_index = below, not first[0] and all(row[0] for row in below)
        elif len(first) > 1 and not first[0]:
            raise UserError(f"{label}: line 1 has numbers, but its first cell is empty; name the row, or all columns")
    has_names = bool(rows) and (has_index or is_column_of_words([row[0] for row in rows]))
    cells = [[float(cell) if is_number(cell) else cell for cell in row[has_names:]] for row in rows]
    shape = (len(cells), len(cells[0])) if cells and cells[0] else ()  # reading an empty table raises the error
    entry = Entry(shape, "float64", lambda index: parse_matrix(cells, label)[index])
    return Contents({"": entry}, tuple(row[0] for row in rows) if has_names else None)


def is_column_of_words(column: Sequence[str]) -> bool:
    """Return whether a column holds words, such as token names: at least half of its cells are not numbers.

    If any cell is a number, some other cell must also be a name (`is_name`). A cell with a digit that is not a name,
    such as 50%, counts as a number that cannot be read, not as a word.
    """
    numbers = [is_number(cell) or (has_digit(cell) and not is_name(cell)) for cell in column]
    return 2 * sum(numbers) <= len(column) and (not any(numbers) or any(map(is_name, column)))


def parse_rows(text: str, separators: Sequence[str]) -> Rows:
    """Return the stripped cells of each nonempty line, with numbers rewritten as Python reads them.

    `separators` are the possible separators, the likeliest first.

    Raises:
        ValueError: the text is not a table, or some numbers have a decimal point and others a comma.
    """
    text = MINUS.sub("-", text)
    sample = "\n".join([line for line in text[: 4000 * SAMPLE].splitlines() if line.strip()][:SAMPLE])
    separator = max(separators, key=lambda separator: rate_separator(split_cells(sample, separator), separator))
    rows = split_cells(text, separator)
    width = max((column for row in rows for column, cell in enumerate(row, 1) if cell), default=0)
    return replace_commas([row[:width] for row in rows if any(row)], separator)


def split_cells(text: str, separator: str) -> Rows:
    if separator in (COMMA, SEMICOLON):
        return [[cell.strip() for cell in row] for row in machine.parse_csv(text, separator, no_blanks=True)]
    lines = [line for line in re.split("\r\n|\r|\n", text) if line.strip()]
    if separator == BLANK:  # quotes are ordinary characters here
        return [line.split() for line in lines]
    return [[re.sub('^"(.*)"$', r"\1", cell.strip()) for cell in line.split(TAB)] for line in lines]


def rate_separator(rows: Rows, separator: str) -> tuple[bool, float, int]:
    """Rate a separator by how well its cells make a table; higher is better."""
    widths = {len(row) for row in rows}
    cells = [cell for row in rows for cell in row]
    numbers = sum(is_number(cell) or (separator != COMMA and bool(DECIMAL_COMMA.fullmatch(cell))) for cell in cells)
    return len(widths) == 1 and widths != {1}, numbers / max(1, len(cells)), len(cells)


def replace_commas(rows: Rows, separator: str) -> Rows:
    decimal_commas = [cell for row in rows for cell in row if DECIMAL_COMMA.fullmatch(cell)]
    if not decimal_commas:
        return rows
    found = f"it holds {brief(decimal_commas[0], 40)!r}"
    point = next((cell for row in rows for cell in row if is_number(cell) and "." in cell), None)
    if point is not None:
        raise ValueError(f"{found} and {brief(point, 40)!r}; write a decimal point in each number")
    if separator in (COMMA, TAB) and all(map(THOUSANDS.fullmatch, decimal_commas)):
        raise ValueError(f"{found}, whose comma may separate thousands; write a decimal point, or no comma")
    return [[cell.replace(",", ".") if DECIMAL_COMMA.fullmatch(cell) else cell for cell in row] for row in rows]


def is_number(cell: str) -> bool:
    return bool(NUMBER.fullmatch(cell))


def is_name(cell: str) -> bool:
    """Return whether a cell may name a column: it contains a letter, and does not begin like a number."""
    is_like_number = re.match(r"[-+\u2212\u2013.,$€£¥#(<'\"]*\d", cell.strip())
    return any(map(str.isalpha, cell)) and not is_like_number and cell.strip().lower() not in NO_NAME


def has_digit(cell: str) -> bool:
    return any(map(str.isdigit, cell))


def has_column_names(
    first: Sequence[str], below: Sequence[Sequence[str]], label: str, is_number: Callable[[str], bool] = is_number
) -> bool:
    """Return whether the first line of a table names its columns.

    It does in three cases:

    - It holds names and no numbers.
    - It begins with an empty cell above row names, followed by names or column numbers, as spreadsheets and pandas
      write it.
    - It counts three or more columns, 0, 1, 2 and so on, as pandas does without names. In this case, no cell below may
      be written as an integer; 0.5, 2.0 and 1e-3 are not.

    `is_number` decides which cells are numbers.

    Raises:
        UserError: a cell, such as 1/2, is neither a name nor a number.
    """
    if not below or len(first) < 2:
        return False
    has_row_names = not first[0] and all(row[0] for row in below)
    has_names = any(map(is_name, first))
    numbering = [str(index) for index in range(len(first))]
    if has_row_names and (has_names or list(first[1:]) in (numbering[:-1], numbering[1:])):
        return True
    if any(map(is_number, first[has_row_names:])):
        start = 0 if is_number(first[0]) else 1
        is_counted = len(first) - start > 2 and list(first[start:]) == numbering[: len(first) - start]
        return (
            is_counted
            and not has_row_names
            and not any(re.fullmatch(r"[-+]?\d+", cell) for row in below for cell in row[start:])
        )
    if has_names and not any(has_digit(cell) and not is_name(cell) for cell in first):
        return True
    column = next(index for index, cell in enumerate(first, 1) if (cell or not has_row_names) and not is_name(cell))
    raise UserError(
        f"{label}: line 1, column {column} holds {brief(first[column - 1], 40)!r}, "
        "which is neither a number nor the name of a column"
    )


# A JSON file is a list of lists, which is a single array, or an object. The object holds arrays by name and perhaps a
# list of tokens, or one vector for each word.


def read_json_arrays(path: Path) -> Contents:
    """Read the arrays of a JSON file.

    An object of vectors, such as `{"she": [1, 2], "likes": [3, 4]}`, is one array; its keys are the tokens.
    """
    value = machine.read_json(path, MOST_TEXT)
    if isinstance(value, list):
        return Contents({}, tuple(value)) if are_texts(value) else Contents({"": make_list_entry(value)})
    if not isinstance(value, dict):
        raise ValueError(
            f"it holds {brief(str(value), 40)}; expected arrays as lists of lists, by name or a single array"
        )
    tokens = next((tuple(value.pop(name)) for name in TOKENS if are_texts(value.get(name))), None)
    arrays = {name: make_list_entry(item) for name, item in value.items() if isinstance(item, list)}
    shapes = {entry.shape for entry in arrays.values()}
    if len(arrays) > 1 and len(shapes) == 1 and len(*shapes) == 1:
        return Contents(arrays | {"": make_list_entry([value[name] for name in arrays])}, tuple(arrays))
    return Contents(arrays, tokens)


def are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def make_list_entry(value: list[Any]) -> Entry:
    """Return the entry of nested lists; if they are not an array of numbers, an error is raised when they are read."""
    try:
        array = np.array(value)
    except ValueError:
        return unreadable_entry("it is ragged: its rows have different lengths")
    if array.dtype.kind not in "iuf":
        return unreadable_entry("it holds something that is not a number, or a number that is too large")
    return Entry(array.shape, str(array.dtype), array.__getitem__)
