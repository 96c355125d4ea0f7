"""The cells of a table of text, as people's programs write it, and which of its lines names the columns.

Cells are apart by commas, semicolons, tabs or blanks, whichever makes lines of one length of which most cells are
numbers. Spreadsheets of half of Europe write `1,5;2,5`: where commas do not part cells, one in a number is its point. A
typographic minus is a minus. A number is ASCII digits with a point and an exponent; anything else that looks like one,
such as `1/2`, `50%`, `0x10` or `1 000`, is none, and is never taken for a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from attn_exp import machine, parsing
from attn_exp.errors import UserError, brief

Rows = list[list[str]]

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.ASCII | re.IGNORECASE)
NOT_FINITE = re.compile(r"[-+]?(inf(inity)?|nan)", re.IGNORECASE)
COMMA_FOR_POINT = re.compile(r"[-+]?(\d*,\d+)(e[-+]?\d+)?", re.ASCII | re.IGNORECASE)
MINUS = re.compile("^[\u2212\u2013](?=[\\d.,i])")
"""A typographic minus, or a dash as word processors write it, before a number."""

NO_NAME = frozenset({"null", "none", "na", "n/a", "nan", "inf", "-inf", "infinity"})
"""Words that stand in the place of a number, and name no column."""

COMMA, SEMICOLON, TAB, BLANK = ",", ";", "\t", " "
SAMPLE = 50
"""Lines that tell how the cells are apart."""


def rows_of(text: str, marks: Sequence[str], most: int = machine.MOST_BYTES) -> Rows:
    """Return the cells of each line that has any, stripped; numbers are written as Python reads them.

    `marks` are what may part cells, the likeliest first.

    Raises:
        ValueError: no table, one that takes too much memory, or numbers with a decimal point beside some with a comma.
    """
    text, own = without_directive(text.removeprefix("\ufeff"))
    marks = own or marks
    lines = [line for line in re.split("\r\n|\r|\n", text[: 400 * SAMPLE * 10]) if line.strip()][:SAMPLE]
    mark = marks[0] if len(marks) == 1 else max(marks, key=lambda mark: fitness(cut(lines, mark), mark))
    rows = cut([text], mark, most)
    width = max((last(row) for row in rows), default=0)
    rows = [row[:width] for row in rows if last(row)]
    if COMMA in text and (mark != COMMA or '"' in text):
        rows = points(rows, mark)
    return [[written(cell) for cell in row] for row in rows] if re.search("[\u2212\u2013]", text) else rows


def without_directive(text: str) -> tuple[str, str]:
    """Return a text without the line `sep=;` that some write for a spreadsheet, and the mark that it names."""
    found = re.match(r'"?sep=(.)"?[ \t]*(?:\r\n|\r|\n)', text, re.IGNORECASE)
    return (text[found.end() :], found[1]) if found else (text, "")


def cut(lines: Sequence[str], mark: str, most: int = machine.MOST_BYTES) -> Rows:
    """Return the cells of texts of one or several lines."""
    if mark == BLANK:
        parts = (line for text in lines for line in re.split("\r\n|\r|\n", text))
        return [re.split("[ \t]+", line.strip(" \t")) for line in parts if line.strip()]
    if mark == TAB:  # where quotes are letters, unless they stand around a cell
        parts = (line for text in lines for line in re.split("\r\n|\r|\n", text))
        return [[unquoted(cell.strip()) for cell in line.split(TAB)] for line in parts if line.strip()]
    rows = parsing.parse_csv("\n".join(lines), mark, most, no_blanks=True)
    return [[cell.strip() for cell in row] for row in rows]


def unquoted(cell: str) -> str:
    """Return a cell without the quotes around it."""
    quoted = len(cell) > 1 and cell[0] == cell[-1] == '"'
    return cell[1:-1].replace('""', '"') if quoted else cell


def last(row: Sequence[str]) -> int:
    """Return how many cells a line has up to the last that holds anything."""
    return max((place for place, cell in enumerate(row, 1) if cell), default=0)


def fitness(rows: Rows, mark: str) -> tuple[bool, float, int]:
    """Return how well cells that are apart by this mark make a table: the more, the better."""
    widths = {len(row) for row in rows}
    cells = [cell for row in rows for cell in row]
    numbers = sum(is_number(cell) or (mark != COMMA and is_comma_number(cell)) for cell in cells)
    return len(widths) == 1 and widths != {1}, numbers / max(1, len(cells)), len(cells)


def points(rows: Rows, mark: str) -> Rows:
    """Return numbers with a point where they have a decimal comma.

    Raises:
        ValueError: one has a comma and another a point, so that one of the two parts thousands; or nobody can tell.
    """
    commas = [(place, cell) for place, cell in placed(rows) if is_comma_number(cell)]
    if not commas:
        return rows
    point = next((cell for _, cell in placed(rows) if is_number(cell) and "." in cell), None)
    (line, column), first = commas[0]
    held = f"line {line}, column {column} holds {brief(first, 40)!r}"
    if point is not None:
        raise ValueError(f"{held}, and another cell {brief(point, 40)!r}; write a point in each")
    if mark in (COMMA, TAB) and all(re.fullmatch(r"[-+\u2212\u2013]?[1-9]\d{0,2},\d{3}", cell) for _, cell in commas):
        raise ValueError(f"{held}, which may be thousands; write a point, or nothing")
    return [[cell.replace(",", ".") if is_comma_number(cell) else cell for cell in row] for row in rows]


def placed(rows: Rows) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield each cell with its line and column, counted from 1."""
    for line, row in enumerate(rows, 1):
        for column, cell in enumerate(row, 1):
            yield (line, column), cell


def written(cell: str) -> str:
    """Return a number with an ordinary minus; any other cell as it is."""
    plain = with_minus(cell)
    return plain if is_number(plain) else cell


def with_minus(cell: str) -> str:
    """Return a cell whose typographic minus is an ordinary one."""
    return MINUS.sub("-", cell.strip())


def is_number(cell: str) -> bool:
    """Say whether a cell holds a number, NaN and infinity among them."""
    plain = with_minus(cell)
    return bool(NUMBER.fullmatch(plain) or NOT_FINITE.fullmatch(plain))


def is_comma_number(cell: str) -> bool:
    """Say whether a cell holds a number with a decimal comma."""
    return bool(COMMA_FOR_POINT.fullmatch(with_minus(cell)))


def is_name(cell: str) -> bool:
    """Say whether a cell may name a column: it holds a letter, and does not begin as a number does."""
    word = cell.strip()
    begins = re.match(r"[-+\u2212\u2013.,$€£¥#(<'\"]*\d", word)
    return any(letter.isalpha() for letter in word) and not begins and word.lower() not in NO_NAME


def names_columns(
    first: Sequence[str], below: Sequence[Sequence[str]], said: str, numbers: Callable[[str], bool] = is_number
) -> bool:
    """Say whether the first of a table's lines names its columns; `numbers` says which cells stand for numbers.

    It does where it holds names and no number; or where it begins with an empty cell above the names of rows, as
    spreadsheets and pandas write it, and holds names or counts the columns; or where it counts three columns or more,
    as pandas does that have no names: 0, 1, 2 above 0.5, 2.0, 1e-3, where no number below is whole.

    Raises:
        UserError: neither names nor numbers, such as 1/2 and 1/3: which cell it is.
    """
    if not below or len(first) < 2:
        return False
    corner = not first[0] and all(row[0] for row in below)
    rest = first[1:] if corner else first
    if corner and (any(map(is_name, rest)) or counts(rest)):
        return True
    if any(map(numbers, rest)):
        return not corner and counts_above_parts(first, below)
    if any(map(is_name, rest)) and not any(any(map(str.isdigit, cell)) and not is_name(cell) for cell in rest):
        return True
    column = next(place for place, cell in enumerate(first, 1) if (cell or not corner) and not is_name(cell))
    raise UserError(
        f"{said}: line 1, column {column} holds {brief(first[column - 1], 40)!r}, "
        "which is neither a number nor the name of a column"
    )


def counts(cells: Sequence[str]) -> bool:
    """Say whether cells count from 0 or from 1 on."""
    return any(list(cells) == [str(place) for place in range(start, start + len(cells))] for start in (0, 1))


def counts_above_parts(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Say whether a line counts three columns or more from 0 on, above numbers none of which is whole."""
    start = 0 if is_number(first[0]) else 1
    columns = list(first[start:])
    counted = len(columns) > 2 and columns == [str(number) for number in range(len(columns))]
    return counted and not any(cell.lstrip("+-").isdecimal() for row in below for cell in islice(row, start, None))
