"""Write and read `answers.csv`: one block per box of a sheet, or a table with one row per student of a class."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from attn_exp import machine
from attn_exp.arrays import Array
from attn_exp.diagnosis.classroom.boxes import NOT_GIVEN, clean_number
from attn_exp.diagnosis.classroom.grading import Grade, grade, make_unreadable_remarks
from attn_exp.diagnosis.classroom.paper import Blank, Paper
from attn_exp.errors import UserError, brief, refuse
from attn_exp.report import worksheet
from attn_exp.report.escapes import decimal
from attn_exp.runs import records

MOST_BYTES = 2_000_000
EXACT = 9
"""The number of decimals that a fraction such as 1/3 is assumed to have."""
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]{1,3})?|[-+]?inf", re.IGNORECASE)
FRACTION = re.compile(r"(?P<over>[-+]?[0-9]{1,9})\s*/\s*(?P<under>[1-9][0-9]{0,8})")

CROSS = re.compile("[x\u00d7\u2717]", re.IGNORECASE)
"""What students write at a masked position."""

Numbers = dict[str, Array]
Lines = Sequence[Sequence[str]]
STUDENT = "student"


@dataclass(frozen=True)
class Filled:
    """A student's file: the numbers by stage `[h r c]`, NaN where a cell is empty or `unreadable`.

    `texts` describes the unreadable cells and their positions. `decimals` is the number of decimals of each number, as
    written.
    """

    numbers: Numbers
    unreadable: Numbers
    texts: tuple[str, ...] = ()
    decimals: Numbers = field(default_factory=dict)

    def grade(self, paper: Paper) -> Grade:
        return grade(paper, self.numbers, self.unreadable, make_unreadable_remarks(self.texts), self.decimals)


def blocks(paper: Paper) -> Iterator[tuple[Blank, int, str, tuple[str, ...], tuple[str, ...]]]:
    """Yield each block of a sheet: its box, its head, the text of its corner, and its row and column names."""
    for blank in paper.blanks:
        rows, columns = (blank.columns, blank.rows) if paper.transposed else (blank.rows, blank.columns)
        yield from ((blank, head, corner_of(blank, head), rows, columns) for head in range(len(blank.right)))


def corner_of(blank: Blank, head: int) -> str:
    return f"{blank.stage} head {head + 1}" if len(blank.right) > 1 else blank.stage


def blank_or_filled(paper: Paper, filled: bool = False) -> str:
    lines = []
    for blank, head, corner, rows, columns in blocks(paper):
        matrix = blank.right[head].T if paper.transposed else blank.right[head]
        lines.append([corner, *map(records.cell, columns)])
        for name, numbers in zip(rows, matrix, strict=True):
            right = [decimal(float(number), paper.digits).replace("−", "-") if filled else "" for number in numbers]
            lines.append([records.cell(name), *right])
        lines.append([])
    return records.as_csv(lines)


def columns_of(paper: Paper) -> list[str]:
    """Return the column heading of each number in a table of students, such as `weights cat sat`."""
    return [
        f"{corner} {row} {column}"
        for _, _, corner, rows, columns in blocks(paper)
        for row in rows
        for column in columns
    ]


def is_table(lines: Lines) -> bool:
    return bool(lines and lines[0]) and lines[0][0].lower() == STUDENT


def blank_table(students: Sequence[str], paper: Paper) -> str:
    names = columns_of(paper)
    rows = [[records.cell(student), *[""] * len(names)] for student in students]
    return records.as_csv([[STUDENT, *map(records.cell, names)], *rows])


def blocks_of_row(heading: Sequence[str], row: Sequence[str], paper: Paper) -> Lines:
    """Convert a student's row of a table to the blocks of a sheet.

    Raises:
        UserError: the columns of the table differ from those of the sheet, or the row has too many cells.
    """
    expected = [name.strip() for name in columns_of(paper)]
    if list(heading[1 : len(expected) + 1]) != expected or any(heading[len(expected) + 1 :]):
        raise UserError(f"the columns are not those of the sheet ({', '.join(expected[:2])}, ...)")
    if any(row[len(expected) + 1 :]):
        raise UserError(
            "more cells than columns; a decimal comma needs quotes around the number, or semicolons between the cells"
        )
    cells, lines = itertools.chain(row[1:], itertools.repeat("")), list[Sequence[str]]()
    for _, _, corner, rows, columns in blocks(paper):
        lines.append([corner, *columns])
        lines.extend([name, *itertools.islice(cells, len(columns))] for name in rows)
    return lines


def read_lines(path: Path) -> Lines:
    """Read the cells of a file of answers.

    Raises:
        UserError: the file cannot be read, or is too large.
    """
    with refuse(f"{path.name}: cannot be read", OSError, ValueError):
        content = machine.decoded(machine.read(path, MOST_BYTES)).lstrip("\ufeff")
        text = content.replace("\r\n", "\n").replace("\r", "\n")
        first = text.lstrip().partition("\n")[0]
        lines = [*machine.parse_csv(text, max(",;\t", key=first.count))]
    return [[records.text_of(cell).strip() for cell in line] for line in lines]


def read_blocks(lines: Lines, paper: Paper) -> Filled:
    cells = cells_of_blocks(lines, paper)
    numbers, crosses, texts = dict[str, Array](), worksheet.crossed(paper), list[str]()
    unreadable, decimals = dict[str, Array](), dict[str, Array]()
    for blank in paper.blanks:
        stage, cross = blank.stage, crosses.get(blank.stage)
        numbers[stage], decimals[stage] = np.full(blank.right.shape, np.nan), np.zeros(blank.right.shape)
        unreadable[stage] = np.full(blank.right.shape, False)
        for spot, cell in np.ndenumerate(cells[stage]):
            if cross is not None and CROSS.fullmatch(cell):
                numbers[stage][spot], decimals[stage][spot] = cross, EXACT
                continue
            try:
                numbers[stage][spot], decimals[stage][spot] = read_number(cell)
            except ValueError:
                unreadable[stage][spot] = True
                place = f"row {blank.rows[spot[1]]}, column {blank.columns[spot[2]]}"
                texts.append(f"{corner_of(blank, spot[0])}, {place}: {brief(cell, 30)!r}")
    given = {stage: array for stage, array in numbers.items() if not np.isnan(array).all()}
    if not given and texts:
        raise UserError(f"no cell holds a number; the first unreadable one is {texts[0]}")
    bad_cells = {stage: mask for stage, mask in unreadable.items() if mask.any()}
    return Filled(given, bad_cells, tuple(texts), decimals)


def cells_of_blocks(lines: Lines, paper: Paper) -> dict[str, Array]:
    """Return the cells of each box as strings `[h r c]`; missing cells are empty strings.

    Rows and columns must be in the order of the sheet; their names may be spelled differently.

    Raises:
        UserError: there is no block, a row or column is missing or moved, or a row has too many cells.
    """
    known = {corner: (blank, head, rows, columns) for blank, head, corner, rows, columns in blocks(paper)}
    cells = {blank.stage: np.full(blank.right.shape, "", object) for blank in paper.blanks}
    start, count = 0, 0
    while start < len(lines):
        first, start = lines[start], start + 1
        corner = first[0].lower() if first else ""
        if corner not in known:
            continue
        blank, head, rows, columns = known[corner]
        body = [*itertools.takewhile(any, lines[start : start + len(rows)])]
        given = [line[0] for line in body] + [*first[1 : len(columns) + 1]]
        expected = [name.strip() for name in (*rows, *columns)]
        if len(given) < len(expected) or (given != expected and {*given} <= {*expected, *known}):
            raise UserError(f"{corner}: a row or column is missing or moved; keep the order of the sheet")
        start, count = start + len(body), count + 1
        box = cells[blank.stage][head].T if paper.transposed else cells[blank.stage][head]
        for row, line in enumerate(body):
            if any(line[len(columns) + 1 :]):
                raise UserError(
                    f"{corner}, row {row + 1}: {len(line) - 1} cells, expected {len(columns)}; "
                    "a decimal comma needs quotes around the number, or semicolons between the cells"
                )
            for column, cell in enumerate(line[1 : len(columns) + 1]):
                box[row, column] = cell
    if not count:
        raise UserError(
            f"found no block of this sheet; expected blocks headed {', '.join(list(known)[:3])}, ..., or a table of "
            f"students whose first column is {STUDENT!r}"
        )
    return cells


def read_number(cell: str) -> tuple[float, int]:
    """Return the number in a cell (NaN if the cell is empty) and the number of decimals it is written with.

    Raises:
        ValueError: the cell is not a number; formulas are not evaluated.
    """
    text = re.sub("^\u2013", "-", re.sub(r"\s", "", clean_number(cell)))
    text = re.sub("∞|infinity|oo$", "inf", text, flags=re.IGNORECASE)
    text = text if "." in text else text.replace(",", ".", 1)
    if text.lower() in NOT_GIVEN:
        return float("nan"), 0
    if fraction := FRACTION.fullmatch(text):
        return int(fraction["over"]) / int(fraction["under"]), EXACT
    shown = text.removesuffix("%")
    if not NUMBER.fullmatch(shown):
        raise ValueError(f"{brief(cell, 30)!r} is not a number")
    decimals, is_share = re.search(r"\.([0-9]+)", shown), shown != text
    return float(shown) / (100 if is_share else 1), (len(decimals[1]) if decimals else 0) + 2 * is_share
