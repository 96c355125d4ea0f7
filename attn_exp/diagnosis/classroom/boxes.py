"""A worksheet box: one stage of a person's computation, with the cells that were filled in and their precision.

1. `read_cells` turns a string, file or array into `Cells`: numbers, the precision in which each is written, and the row
   and column names of a table. The string `[[0.4,],[1,0]]` gives the values 0.4, NaN, 1 and 0.
2. `make_box` places these in the full array of a stage, and `Box.misses` compares them with a result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from attn_exp import machine
from attn_exp.arrays import Array, Shape
from attn_exp.errors import UserError, brief, reason
from attn_exp.experiment.published import NUMBER, count_digits, most_decimals, strip_wrapper
from attn_exp.problem.files.numpy_files import read_npy
from attn_exp.problem.files.tables import BLANK, COMMA, SEMICOLON, TAB, has_column_names, parse_rows
from attn_exp.problem.problem import Problem

KEYED = ("scores", "logits", "capped", "masked", "weights")
"""Stages with a column for each key."""
TRANSPOSED = "rows and columns swapped"
"""The note on a box whose numbers were transposed."""
AS_GOOD_AS_MINUS_INFINITY = -1e4
"""A number this low counts as -inf, because many write it for a hidden key."""
NOT_GIVEN = ("", "null", "none", "nan", "na", "n/a", "_", "?", "-", "...")
"""Strings that mark a cell as left out."""
INFINITE = re.compile(r"[-+]?inf(inity)?", re.IGNORECASE)
PASTED = re.compile(r"\[[\[\s]*(?:[-+.\d\u2212]|nan\b|inf\b)")
"""Matches the beginning of a printed array, but not a table that begins with a name such as [CLS]."""


@dataclass(frozen=True, eq=False)
class Box:
    """The numbers that a person gave for one stage.

    - `values`: the numbers in the full array of the stage, NaN where none is given.
    - `tolerances`: how far each number may be from a result, if all are as precise as the one with the most decimals.
    - `own_tolerances`: the same, if each is only as precise as its own decimals. Next to 0.25, the number 0.5 has the
      tolerance 0.005 and the own tolerance 0.05.
    - `names`: the row names and the column names.
    - `note`: describes how an ambiguous input was read.
    - `roundings`: the rounding error that later boxes may inherit from each number, 0 where it is exactly right; None
      means `tolerances`.
    """

    stage: str
    values: Array
    tolerances: Array
    own_tolerances: Array
    names: tuple[tuple[str, ...], tuple[str, ...]]
    note: str = ""
    roundings: Array | None = None

    @cached_property
    def given(self) -> Array:
        return ~np.isnan(self.values)

    @cached_property
    def far(self) -> Array | None:
        """Mask of the given cells that are infinite or too large to be ordinary numbers; None if there are none."""
        far = np.isinf(self.values) | (np.abs(self.values) >= -AS_GOOD_AS_MINUS_INFINITY)
        return far if far.any() else None

    @property
    def count_text(self) -> str:
        count = int(self.given.sum())
        share = f"all {count} numbers" if count == self.values.size else f"{count} of {self.values.size} numbers"
        return f"{share}, read as {self.note}" if self.note else share

    def misses(self, array: Array | None, widening: Array | float = 0.0) -> Array:
        """Return a mask of the given cells that differ from these numbers by more than tolerance and `widening`."""
        if array is None or array.shape != self.values.shape:
            return self.given
        with np.errstate(invalid="ignore"):
            near = np.abs(self.values - array) <= self.tolerances * (1 + 1e-9) + widening
            if self.far is not None:
                near |= (self.values == array) | (np.isneginf(array) & (self.values <= AS_GOOD_AS_MINUS_INFINITY))
        return np.asarray(self.given & ~near)

    def format_number(self, index: Iterable[int], number: float) -> str:
        half = float(self.tolerances[tuple(index)])
        digits = max(0, round(-np.log10(2 * half))) if half > 0 else 6
        return f"{number:.{digits}f}" if digits <= 6 else f"{number:.6g}"

    def rearrange(self, move: Callable[[Array], Array]) -> Box:
        """Return the box with its numbers rearranged; `move` is applied to them and to their tolerances."""
        values, tolerances, own_tolerances = map(move, (self.values, self.tolerances, self.own_tolerances))
        return replace(self, values=values, tolerances=tolerances, own_tolerances=own_tolerances, roundings=None)

    def name_cell(self, index: Iterable[int]) -> str:
        """Name a cell by its index `[h r c]` or `[r c]`, such as "head 2, row she, key cat"."""
        *head, row, column = index
        rows, columns = self.names
        head_name = f"head {head[0] + 1}, " if head and self.values.shape[0] > 1 else ""
        name = f"key {columns[column]}" if self.stage in KEYED else f"number {column + 1}"
        return f"{head_name}row {rows[row]}, {name}"


def make_box(stage: str, cells: Cells, whole: Array, problem: Problem) -> Box:
    """Place the given numbers of a stage in the full array `[h t s]`, `[h t d]` or `[t m]`.

    If there are several heads, a matrix contains the first head, or all heads stacked vertically. Numbers that fit only
    when transposed are transposed. If rows or columns are missing, names say which ones are given; without names, they
    are the first ones.

    Raises:
        UserError: there are too many numbers, or a name is not a token.
    """
    shape = whole.shape if whole.ndim == 3 else (1, *whole.shape)
    rows = problem.key_tokens if stage in "kv" else problem.tokens
    columns = problem.key_tokens if stage in KEYED else tuple(str(column + 1) for column in range(shape[2]))
    notes = list[str]()
    if not fits_into(cells.values.shape, shape) and fits_into(cells.values.T.shape, shape) and cells.values.ndim == 2:
        cells = Cells(
            cells.values.T, cells.tolerances.T, cells.own_tolerances.T, cells.columns, cells.rows, cells.dtype_error
        )
        notes.append(TRANSPOSED)
    given = cells.values
    if not fits_into(given.shape, shape):
        per_head = f" for each of {shape[0]} heads" if shape[0] > 1 else ""
        raise UserError(
            f"answer.{stage} has shape {list(given.shape)}; "
            f"expected {shape[1]} rows of {shape[2]} numbers{per_head}, or some of them"
        )
    if shape[0] > 1 and given.ndim == 2 and len(given) <= shape[1]:
        notes.append("the first head")
    least = find_dtype_error(cells)
    values, tolerances, own_tolerances = (
        place_cells(stage, numbers, shape, cells, (rows, columns)).reshape(whole.shape)
        for numbers in (given, np.maximum(cells.tolerances, least), np.maximum(cells.own_tolerances, least))
    )
    return Box(stage, values, tolerances, own_tolerances, (rows, columns), ", ".join(notes))


def find_dtype_error(cells: Cells) -> float:
    """Return the rounding error of the largest given number in its dtype, ignoring those that stand for -inf."""
    finite = np.abs(cells.values[np.isfinite(cells.values)])
    return float(cells.dtype_error * finite[finite < -AS_GOOD_AS_MINUS_INFINITY].max(initial=1e-30))


def fits_into(shape: Shape, full_shape: Shape) -> bool:
    """Return whether numbers of one shape fill an array `[h r c]`, or fit into its first rows and columns."""
    heads, rows, columns = full_shape
    if len(shape) == 3:
        return shape[0] == heads and shape[1] <= rows and shape[2] <= columns
    if len(shape) == 2:
        return shape[1] <= columns and (shape[0] <= rows or shape[0] == heads * rows)
    return len(shape) == 1 and shape[0] <= columns


def place_cells(
    stage: str, numbers: Array, shape: Shape, cells: Cells, names: tuple[tuple[str, ...], tuple[str, ...]]
) -> Array:
    """Return an array `[h r c]` with these numbers in their places, and NaN everywhere else.

    `numbers` are the values or the tolerances of `cells`: of all heads, of all heads stacked, or of the first head.
    `names` are the row and column names of the full array.
    """
    full = np.full(shape, np.nan)
    if numbers.ndim == 3:
        full[:, : numbers.shape[1], : numbers.shape[2]] = numbers
        return full
    numbers = np.atleast_2d(numbers)
    columns = find_indices(
        cells.columns if stage in KEYED else (), names[1], numbers.shape[1], f"answer.{stage}: column"
    )
    if len(numbers) > shape[1]:  # all heads stacked
        full.reshape(-1, shape[2])[:, columns] = numbers
    else:
        rows = find_indices(cells.rows, names[0], len(numbers), f"answer.{stage}: row")
        full[0][np.ix_(rows, columns)] = numbers
    return full


def find_indices(names: tuple[str, ...], tokens: tuple[str, ...], count: int, label: str) -> list[int]:
    """Return the index of each named row or column among the tokens; if no name is a token, return 0 to `count - 1`.

    Raises:
        UserError: only some of the names are tokens, or a name occurs too often.
    """
    lowercase_names = [name.lower() for name in names]
    indices_of_token = dict[str, list[int]]()
    for index, token in enumerate(tokens):
        indices_of_token.setdefault(token.lower(), []).append(index)
    if not any(name in indices_of_token for name in lowercase_names):
        return list(range(count))
    for name in names:
        if name.lower() not in indices_of_token:
            raise UserError(f"{label} {name!r} is not a token; expected {', '.join(tokens)}")
    for token, indices in indices_of_token.items():
        if lowercase_names.count(token) > len(indices):
            raise UserError(f"{label} {token!r} occurs more often here than among the tokens")
    return [indices_of_token[name].pop(0) for name in lowercase_names]  # a repeated token takes its next index


# Numbers from a person, typed or from a file: their values, their precision, and which were left out


@dataclass(frozen=True, eq=False)
class Cells:
    """Numbers in the shape in which the user gave them, NaN where a cell was left out, with row and column names.

    - `tolerances`: half a unit of the last decimal, if all numbers have as many decimals as the one with most.
    - `own_tolerances`: half a unit of the last decimal that each number itself has.
    - `dtype_error`: the relative rounding error of the dtype.
    """

    values: Array
    tolerances: Array
    own_tolerances: Array
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    dtype_error: float = float(np.finfo(np.float64).eps ** 0.75)


def read_cells(given: Any, key: str) -> Cells:
    """Read numbers from a string such as `[[0.4,0.6],[1,0]]`, a CSV or NPY file, an array, or lists.

    Raises:
        UserError: the file does not exist, a cell is not a number, or rows have different lengths.
    """
    if isinstance(given, str | Path):
        text = strip_wrapper(str(given)).strip()
        if text.startswith("["):
            return parse_cells(parse_lists(text, key), key)
        words = text.replace(",", " ").split()  # a row of numbers needs no brackets
        if words and all(map(NUMBER.fullmatch, words)) and not Path(text).is_file():
            return parse_cells(words, key)
        return read_file(Path(text), key)
    array = np.asarray(given)
    return read_array(array, key) if array.dtype.kind in "iuf" else parse_cells(to_strings(given), key)


def to_strings(numbers: Any) -> Any:
    if isinstance(numbers, list | tuple | np.ndarray):
        return [to_strings(item) for item in numbers]
    return "" if numbers is None else str(numbers)


def parse_lists(text: str, key: str) -> Any:
    """Parse bracketed text into nested lists of strings; a cell between two commas may be empty."""
    text = re.sub(r"[^\[\],\s]+", lambda cell: json.dumps(clean_number(cell[0]) or "_"), text)  # quote each cell
    text = re.sub(r'(?<=["\]])(?=\s*\[)|(?<=")(?=\s+")|(?<=\])(?=\s*")', ",", text)  # add missing commas
    text = re.sub(r"(?<=[\[,])(?=\s*,)|(?<=,)(?=\s*\])", '""', text)  # fill empty cells
    try:
        return machine.parse_json(text.encode())
    except ValueError as error:
        shown = f"{key}={brief(text, 60)}: the brackets do not match"
        raise UserError(f"{shown}; expected rows, such as [[0.4,0.6],[1,0]]") from error


def parse_cells(texts: Any, key: str) -> Cells:
    """Convert nested lists of strings to numbers with their precision.

    Raises:
        UserError: a cell is not a number, no cell is, or rows have different lengths.
    """
    shape = find_shape(texts, key)
    words = [clean_number(word) for word in np.array(texts, dtype=object).ravel()]
    for index, word in enumerate(words):
        if not is_number(word):
            where = ", ".join(str(int(coordinate) + 1) for coordinate in np.unravel_index(index, shape))
            raise UserError(f"{key}: cell {where} holds {brief(word, 40)!r}, which is not a number")
    values = np.array([np.nan if word.lower() in NOT_GIVEN else float(word) for word in words])
    if not np.isfinite(values).any():
        raise UserError(f"{key}: no number is given")
    tolerances, own_tolerances = (find_half_units(words, shared=shared).reshape(shape) for shared in (True, False))
    return Cells(values.reshape(shape), tolerances, own_tolerances)


def clean_number(word: str) -> str:
    """Return a number as written, but with an ASCII minus sign and without spaces and quotes."""
    return word.strip().strip("'\"").replace("\u2212", "-")


def find_half_units(words: Sequence[str], *, shared: bool) -> Array:
    """Return half a unit of the last decimal of each number.

    With `shared`, all numbers count as having as many decimals as the one with most.
    """
    digits = {word: count_digits(word) for word in words if NUMBER.fullmatch(word)}
    longest = most_decimals([*digits.values()])
    # 1.5e-3 has 1 - (-3) decimals; only numbers without a power of ten may lack trailing zeros
    last_decimals = {
        word: decimals - power if power is not None else longest if shared else decimals
        for word, (decimals, power) in digits.items()
    }
    return np.array([float(f"0.5e{-last_decimals[word]}") if word in last_decimals else 0.0 for word in words])


def find_shape(texts: Any, key: str) -> Shape:
    if not isinstance(texts, list):
        return ()
    shapes = {find_shape(item, key) for item in texts}
    if not texts or len(shapes) > 1:
        lengths = ", ".join(str(len(item)) if isinstance(item, list) else "1" for item in texts)
        raise UserError(f"{key} is ragged: rows of {brief(lengths)} numbers; write null for missing numbers")
    return (len(texts), *shapes.pop())


def read_array(array: Array, key: str) -> Cells:
    """Convert an array to cells, as if each number were written with all the digits that its dtype needs."""
    dtype = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
    return replace(parse_cells(to_strings(np.atleast_1d(array)), key), dtype_error=float(np.finfo(dtype).eps ** 0.75))


def read_file(path: Path, key: str) -> Cells:
    try:
        if path.suffix == ".npy":
            array = read_npy(path)
            if array.dtype.kind not in "iuf":
                raise UserError(f"{key}={path}: expected an array of real numbers")
            return read_array(array, key)
        text = machine.decode_text(machine.read(path)).removeprefix("\ufeff")
        stripped = strip_wrapper(text).strip()
        return parse_cells(parse_lists(stripped, key), key) if PASTED.match(stripped) else read_table(text, key)
    except UserError:
        raise
    except Exception as error:  # reading a person's file may raise anything
        raise UserError(f"{key}={path}: cannot be read ({reason(error)})") from error


def read_table(text: str, key: str) -> Cells:
    """Read a CSV table that may have column names in its first row and row names in its first column."""
    lines = parse_rows(re.sub(r"^[ \t]*#.*$", "", text, flags=re.MULTILINE), (COMMA, SEMICOLON, TAB, BLANK))
    rows = [row for row in lines if any(cell.strip() for cell in row)]
    if not rows:
        raise UserError(f"{key}: the file is empty")
    header = rows[0] if has_column_names(rows[0], rows[1:], key, is_number) else None
    body = rows[1:] if header else rows
    # above the row names, the header has an empty cell or no cell
    has_corner = header is not None and (not header[0].strip() or len(header) == len(body[0]) - 1)
    has_names = has_corner or all(not is_number(row[0]) and len(row) > 1 for row in body)
    numbers = parse_cells([list(row[has_names:]) for row in body], key)
    return replace(
        numbers,
        rows=tuple(row[0].strip() for row in body) if has_names else (),
        columns=() if header is None else tuple(cell.strip() for cell in header[-numbers.values.shape[1] :]),
    )


def is_number(cell: str) -> bool:
    word = clean_number(cell)
    return bool(NUMBER.fullmatch(word) or INFINITE.fullmatch(word)) or word.lower() in NOT_GIVEN
