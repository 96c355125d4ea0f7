"""Write and read `answers.csv`: one block per box of a sheet, or a table with one row per student of a class.

A block is a small table. Its top left cell, the corner, names the box, for example `scores head 2`; its first row
names the columns, and its first column the rows. `read_lines` splits a file into cells, `row_to_blocks` turns a
student's row of a table into blocks, and `read_blocks` reads the numbers.
"""

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

MOST_BYTES = 2_000_000  # size limit of a file of answers
EXACT = 9
"""The number of decimals assumed for a fraction such as 1/3, and for a cross."""
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]{1,3})?|[-+]?inf", re.IGNORECASE)
FRACTION = re.compile(r"(?P<over>[-+]?[0-9]{1,9})\s*/\s*(?P<under>[1-9][0-9]{0,8})")

CROSS = re.compile("[x\u00d7\u2717]", re.IGNORECASE)  # what students write at a masked position

Numbers = dict[str, Array]  # numbers by stage, `[h r c]`
Lines = Sequence[Sequence[str]]  # the cells of a file, line by line
STUDENT = "student"  # heading of the first column in a table of students


@dataclass(frozen=True)
class Filled:
    """The numbers that a student filled in, by stage.

    - `numbers`: `[h r c]`, NaN where a cell is empty or unreadable.
    - `unreadable`: which cells are unreadable. `texts`: these cells in words, with their positions.
    - `decimals`: with how many decimals each number is written.
    """

    numbers: Numbers
    unreadable: Numbers
    texts: tuple[str, ...] = ()
    decimals: Numbers = field(default_factory=dict)

    def grade(self, paper: Paper) -> Grade:
        return grade(paper, self.numbers, self.unreadable, make_unreadable_remarks(self.texts), self.decimals)


def list_blocks(paper: Paper) -> Iterator[tuple[Blank, int, str, tuple[str, ...], tuple[str, ...]]]:
    """Yield each block of a sheet: its box, its head, its corner, its row names and its column names."""
    for blank in paper.blanks:
        rows, columns = (blank.columns, blank.rows) if paper.transposed else (blank.rows, blank.columns)
        yield from ((blank, head, corner_of(blank, head), rows, columns) for head in range(len(blank.right)))


def corner_of(blank: Blank, head: int) -> str:
    return f"{blank.stage} head {head + 1}" if len(blank.right) > 1 else blank.stage


def format_answers(paper: Paper, filled: bool = False) -> str:
    lines = []
    for blank, head, corner, rows, columns in list_blocks(paper):
        matrix = blank.right[head].T if paper.transposed else blank.right[head]
        lines.append([corner, *map(records.format_cell, columns)])
        for name, numbers in zip(rows, matrix, strict=True):
            right = [decimal(float(number), paper.digits).replace("−", "-") if filled else "" for number in numbers]
            lines.append([records.format_cell(name), *right])
        lines.append([])
    return records.as_csv(lines)


def list_headings(paper: Paper) -> list[str]:
    """Return the column heading of each number in a table of students, such as `weights cat sat`."""
    return [
        f"{corner} {row} {column}"
        for _, _, corner, rows, columns in list_blocks(paper)
        for row in rows
        for column in columns
    ]


def is_table(lines: Lines) -> bool:
    """Return whether a file is a table of students instead of the blocks of one student."""
    return bool(lines and lines[0]) and lines[0][0].lower() == STUDENT


def format_blank_table(students: Sequence[str], paper: Paper) -> str:
    names = list_headings(paper)
    rows = [[records.format_cell(student), *[""] * len(names)] for student in students]
    return records.as_csv([[STUDENT, *map(records.format_cell, names)], *rows])


def row_to_blocks(heading: Sequence[str], row: Sequence[str], paper: Paper) -> Lines:
    """Convert a student's row of a table to the blocks of a sheet.

    Raises:
        UserError: the columns of the table differ from those of the sheet, or the row has too many cells.
    """
    expected = [name.strip() for name in list_headings(paper)]
    if list(heading[1 : len(expected) + 1]) != expected or any(heading[len(expected) + 1 :]):
        raise UserError(f"the columns are not those of the sheet ({', '.join(expected[:2])}, ...)")
    if any(row[len(expected) + 1 :]):
        raise UserError(
            "more cells than columns; a decimal comma needs quotes around the number, or semicolons between the cells"
        )
    cells, lines = itertools.chain(row[1:], itertools.repeat("")), list[Sequence[str]]()
    for _, _, corner, rows, columns in list_blocks(paper):
        lines.append([corner, *columns])
        lines.extend([name, *itertools.islice(cells, len(columns))] for name in rows)
    return lines


def read_lines(path: Path) -> Lines:
    """Read the cells of an answers file.

    Raises:
        UserError: the file cannot be read, or is too large.
    """
    with refuse(f"{path.name}: cannot be read", OSError, ValueError):
        content = machine.decode_text(machine.read(path, MOST_BYTES)).lstrip("\ufeff")
        text = content.replace("\r\n", "\n").replace("\r", "\n")
        first_line = text.lstrip().partition("\n")[0]
        lines = [*machine.parse_csv(text, max(",;\t", key=first_line.count))]
    return [[records.parse_text(cell).strip() for cell in line] for line in lines]


def read_blocks(lines: Lines, paper: Paper) -> Filled:
    """Read the numbers of one student from the blocks of a sheet.

    Raises:
        UserError: as for `read_cells`, or no cell holds a number.
    """
    cells_of = read_cells(lines, paper)
    numbers, cross_of, texts = dict[str, Array](), worksheet.cross_values(paper), list[str]()
    unreadable, decimals = dict[str, Array](), dict[str, Array]()
    for blank in paper.blanks:
        stage, cross = blank.stage, cross_of.get(blank.stage)
        numbers[stage], decimals[stage] = np.full(blank.right.shape, np.nan), np.zeros(blank.right.shape)
        unreadable[stage] = np.full(blank.right.shape, False)
        for index, cell in np.ndenumerate(cells_of[stage]):
            if cross is not None and CROSS.fullmatch(cell):
                numbers[stage][index], decimals[stage][index] = cross, EXACT
                continue
            try:
                numbers[stage][index], decimals[stage][index] = read_number(cell)
            except ValueError:
                unreadable[stage][index] = True
                position = f"row {blank.rows[index[1]]}, column {blank.columns[index[2]]}"
                texts.append(f"{corner_of(blank, index[0])}, {position}: {brief(cell, 30)!r}")
    filled_in = {stage: array for stage, array in numbers.items() if not np.isnan(array).all()}
    if not filled_in and texts:
        raise UserError(f"no cell holds a number; the first unreadable one is {texts[0]}")
    bad_cells = {stage: mask for stage, mask in unreadable.items() if mask.any()}
    return Filled(filled_in, bad_cells, tuple(texts), decimals)


def read_cells(lines: Lines, paper: Paper) -> dict[str, Array]:
    """Return the cells of each box as strings `[h r c]`; missing cells are empty strings.

    Rows and columns must be in the order of the sheet; a student may have changed their names.

    Raises:
        UserError: there is no block, a row or column is missing or moved, or a row has too many cells.
    """
    blocks_by_corner = {
        corner: (blank, head, rows, columns) for blank, head, corner, rows, columns in list_blocks(paper)
    }
    cells = {blank.stage: np.full(blank.right.shape, "", object) for blank in paper.blanks}
    start, blocks_found = 0, 0
    while start < len(lines):
        heading, start = lines[start], start + 1
        corner = heading[0].lower() if heading else ""
        if corner not in blocks_by_corner:
            continue
        blank, head, rows, columns = blocks_by_corner[corner]
        body = [*itertools.takewhile(any, lines[start : start + len(rows)])]
        found = [line[0] for line in body] + [*heading[1 : len(columns) + 1]]
        expected = [name.strip() for name in (*rows, *columns)]
        # if the names differ, at least one must be new; if all are from the sheet, something was moved
        if len(found) < len(expected) or (found != expected and {*found} <= {*expected, *blocks_by_corner}):
            raise UserError(f"{corner}: a row or column is missing or moved; keep the order of the sheet")
        start, blocks_found = start + len(body), blocks_found + 1
        box = cells[blank.stage][head].T if paper.transposed else cells[blank.stage][head]
        for row, line in enumerate(body):
            if any(line[len(columns) + 1 :]):
                raise UserError(
                    f"{corner}, row {row + 1}: {len(line) - 1} cells, expected {len(columns)}; "
                    "a decimal comma needs quotes around the number, or semicolons between the cells"
                )
            for column, cell in enumerate(line[1 : len(columns) + 1]):
                box[row, column] = cell
    if not blocks_found:
        raise UserError(
            f"found no block of this sheet; expected blocks headed {', '.join(list(blocks_by_corner)[:3])}, ..., or a "
            f"table of students whose first column is {STUDENT!r}"
        )
    return cells


def read_number(cell: str) -> tuple[float, int]:
    """Return the number in a cell, NaN if the cell is empty, and its number of decimals.

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
    digits = text.removesuffix("%")
    if not NUMBER.fullmatch(digits):
        raise ValueError(f"{brief(cell, 30)!r} is not a number")
    decimals, is_percentage = re.search(r"\.([0-9]+)", digits), digits != text
    return float(digits) / (100 if is_percentage else 1), (len(decimals[1]) if decimals else 0) + 2 * is_percentage
