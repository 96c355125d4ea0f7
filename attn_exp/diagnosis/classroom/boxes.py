"""A worksheet box: one stage of a person's computation, with the cells that were filled in and their precision.

`read_cells` turns a string, file or array into `Cells`: numbers with the precision in which each is written, and the
row and column names of a table. `box` places these in the array of a stage; `Box.misses` compares them with a result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
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
TURNED = "rows and columns swapped"
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
    """The given numbers of one stage, in the shape of the full array, NaN where none is given.

    `halves` is the rounding tolerance of each number, and `own` the tolerance that its own digits imply. `names` are
    the row and column names, and `note` describes how an ambiguous input was read. `moves` is how far each number may
    have been rounded before later boxes used it: 0 where it is exactly right.
    """

    stage: str
    values: Array
    halves: Array
    own: Array
    names: tuple[tuple[str, ...], tuple[str, ...]]
    note: str = ""
    moves: Array | None = None

    @cached_property
    def given(self) -> Array:
        return ~np.isnan(self.values)

    @cached_property
    def far(self) -> Array | None:
        """Mask of the given cells that are infinite or too large to be ordinary numbers; None if there are none."""
        far = np.isinf(self.values) | (np.abs(self.values) >= -AS_GOOD_AS_MINUS_INFINITY)
        return far if far.any() else None

    @property
    def counted(self) -> str:
        count = int(self.given.sum())
        share = f"all {count} numbers" if count == self.values.size else f"{count} of {self.values.size} numbers"
        return f"{share}, read as {self.note}" if self.note else share

    def misses(self, array: Array | None, widening: Array | float = 0.0) -> Array:
        """Return a mask of the given cells that differ from these numbers by more than rounding."""
        if array is None or array.shape != self.values.shape:
            return self.given
        with np.errstate(invalid="ignore"):
            near = np.abs(self.values - array) <= self.halves * (1 + 1e-9) + widening
            if self.far is not None:
                near |= (self.values == array) | (np.isneginf(array) & (self.values <= AS_GOOD_AS_MINUS_INFINITY))
        return np.asarray(self.given & ~near)

    def write_like(self, index: Iterable[int], number: float) -> str:
        half = float(self.halves[tuple(index)])
        digits = max(0, round(-np.log10(2 * half))) if half > 0 else 6
        return f"{number:.{digits}f}" if digits <= 6 else f"{number:.6g}"

    def where(self, index: Iterable[int]) -> str:
        *head, row, column = index
        rows, columns = self.names
        head_name = f"head {head[0] + 1}, " if head and self.values.shape[0] > 1 else ""
        name = f"key {columns[column]}" if self.stage in KEYED else f"number {column + 1}"
        return f"{head_name}row {rows[row]}, {name}"


def box(stage: str, cells: Cells, whole: Array, problem: Problem) -> Box:
    """Place the given numbers of a stage in the full array `[h t s]`, `[h t d]` or `[t m]`.

    With several heads, a matrix is the first head, or all heads stacked vertically. Numbers that fit only when
    transposed are transposed. If rows or columns are missing, the given ones are the first, unless they are named.

    Raises:
        UserError: there are too many numbers, or a name is not a token.
    """
    shape = whole.shape if whole.ndim == 3 else (1, *whole.shape)
    rows = problem.key_tokens if stage in "kv" else problem.tokens
    columns = problem.key_tokens if stage in KEYED else tuple(str(column + 1) for column in range(shape[2]))
    notes = list[str]()
    if not has_room(cells.values.shape, shape) and has_room(cells.values.T.shape, shape) and cells.values.ndim == 2:
        cells = Cells(cells.values.T, cells.halves.T, cells.own.T, cells.columns, cells.rows, cells.floor)
        notes.append(TURNED)
    given = cells.values
    if not has_room(given.shape, shape):
        per_head = f" for each of {shape[0]} heads" if shape[0] > 1 else ""
        raise UserError(
            f"answer.{stage} has shape {list(given.shape)}; "
            f"expected {shape[1]} rows of {shape[2]} numbers{per_head}, or some of them"
        )
    if shape[0] > 1 and given.ndim == 2 and len(given) <= shape[1]:
        notes.append("the first head")
    values, halves, own = (
        spread(stage, array, shape, cells, (rows, columns)).reshape(whole.shape)
        for array in (given, np.maximum(cells.halves, floor(cells)), np.maximum(cells.own, floor(cells)))
    )
    return Box(stage, values, halves, own, (rows, columns), ", ".join(notes))


def floor(cells: Cells) -> float:
    """Return the rounding error of the dtype of the given numbers."""
    finite = np.abs(cells.values[np.isfinite(cells.values)])
    return float(cells.floor * finite[finite < -AS_GOOD_AS_MINUS_INFINITY].max(initial=1e-30))


def has_room(given: Shape, shape: Shape) -> bool:
    """Return whether numbers of one shape fill an array `[h r c]`, or fit into its first rows and columns."""
    heads, rows, columns = shape
    if len(given) == 3:
        return given[0] == heads and given[1] <= rows and given[2] <= columns
    if len(given) == 2:
        return given[1] <= columns and (given[0] <= rows or given[0] == heads * rows)
    return len(given) == 1 and given[0] <= columns


def spread(
    stage: str, part: Array, shape: Shape, cells: Cells, names: tuple[tuple[str, ...], tuple[str, ...]]
) -> Array:
    """Write the given numbers into an array of NaN: numbers of all heads, all heads stacked, or only the first head."""
    whole = np.full(shape, np.nan)
    if part.ndim == 3:
        whole[:, : part.shape[1], : part.shape[2]] = part
        return whole
    part = np.atleast_2d(part)
    columns = find_places(cells.columns if stage in KEYED else (), names[1], part.shape[1], f"answer.{stage}: column")
    if len(part) > shape[1]:
        whole.reshape(-1, shape[2])[:, columns] = part
    else:
        rows = find_places(cells.rows, names[0], len(part), f"answer.{stage}: row")
        whole[0][np.ix_(rows, columns)] = part
    return whole


def find_places(given: tuple[str, ...], tokens: tuple[str, ...], count: int, what: str) -> list[int]:
    """Return the index of each named row or column among the tokens; the first `count` indices if none is a token.

    Raises:
        UserError: only some of the names are tokens, or a name occurs too often.
    """
    names, free = [name.lower() for name in given], dict[str, list[int]]()
    for place, token in enumerate(tokens):
        free.setdefault(token.lower(), []).append(place)
    if not any(name in free for name in names):
        return list(range(count))
    for original, name in zip(given, names, strict=True):
        if name not in free:
            raise UserError(f"{what} {original!r} is not a token; expected {', '.join(tokens)}")
    for name, places in free.items():
        if names.count(name) > len(places):
            raise UserError(f"{what} {name!r} occurs more often here than among the tokens")
    return [free[name].pop(0) for name in names]


# Numbers from a person, typed or from a file: their values, their precision, and which were left out


@dataclass(frozen=True, eq=False)
class Cells:
    """Numbers as the user gave them, NaN where a cell was left out, with row and column names if there are any.

    `halves` is half a unit of the last decimal of each number, if all have as many decimals as the longest; `own` is
    half a unit of the last decimal that the number has. `floor` is the rounding error of the dtype.
    """

    values: Array
    halves: Array
    own: Array
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    floor: float = float(np.finfo(np.float64).eps ** 0.75)


def read_cells(given: Any, key: str) -> Cells:
    """Read numbers from a string such as `[[0.4,0.6],[1,0]]`, a CSV or NPY file, an array, or lists.

    Raises:
        UserError: the file does not exist, a cell is not a number, or rows have different lengths.
    """
    if isinstance(given, str | Path):
        text = strip_wrapper(str(given)).strip()
        if text.startswith("["):
            return cells(parse_lists(text, key), key)
        words = text.replace(",", " ").split()  # a row of numbers may stand without brackets
        if words and all(map(NUMBER.fullmatch, words)) and not Path(text).is_file():
            return cells(words, key)
        return from_file(Path(text), key)
    array = np.asarray(given)
    if array.dtype.kind in "iuf":
        return from_array(array, key)
    return cells(to_strings(given), key)


def to_strings(given: Any) -> Any:
    if isinstance(given, list | tuple | np.ndarray):
        return [to_strings(item) for item in given]
    return "" if given is None else str(given)


def parse_lists(text: str, key: str) -> Any:
    """Parse bracketed text into nested lists of strings; a cell between two commas may be empty."""
    text = re.sub(r"[^\[\],\s]+", lambda cell: json.dumps(plain(cell[0]) or "_"), text)  # quote each cell
    text = re.sub(r'(?<=["\]])(?=\s*\[)|(?<=")(?=\s+")|(?<=\])(?=\s*")', ",", text)  # add missing commas
    text = re.sub(r"(?<=[\[,])(?=\s*,)|(?<=,)(?=\s*\])", '""', text)  # fill empty cells
    try:
        return machine.parse_json(text.encode())
    except ValueError as error:
        shown = f"{key}={brief(text, 60)}: the brackets do not match"
        raise UserError(f"{shown}; expected rows, such as [[0.4,0.6],[1,0]]") from error


def cells(given: Any, key: str) -> Cells:
    """Convert nested lists of strings to numbers with their precision.

    Raises:
        UserError: a cell is not a number, no cell is, or rows have different lengths.
    """
    shape = shape_of(given, key)
    words = [plain(word) for word in np.array(given, dtype=object).ravel()]
    for place, word in enumerate(words):
        if not is_number(word):
            where = ", ".join(str(int(index) + 1) for index in np.unravel_index(place, shape))
            raise UserError(f"{key}: cell {where} holds {brief(word, 40)!r}, which is not a number")
    values = np.array([np.nan if word.lower() in NOT_GIVEN else float(word) for word in words])
    if not np.isfinite(values).any():
        raise UserError(f"{key}: no number is given")
    shared, own = (halves(words, shared=shared).reshape(shape) for shared in (True, False))
    return Cells(values.reshape(shape), shared, own)


def plain(word: str) -> str:
    """Return a number as written, but with an ASCII minus sign and without spaces and quotes."""
    return word.strip().strip("'\"").replace("\u2212", "-")


def halves(words: Sequence[str], *, shared: bool) -> Array:
    """Return half a unit of the last decimal of each number; `shared` as if all had as many decimals as the longest."""
    digits = {word: count_digits(word) for word in words if NUMBER.fullmatch(word)}
    most = most_decimals([*digits.values()])
    lasts = {
        word: decimals - power if power is not None else most if shared else decimals
        for word, (decimals, power) in digits.items()
    }
    return np.array([float(f"0.5e{-lasts[word]}") if word in lasts else 0.0 for word in words])


def shape_of(given: Any, key: str) -> Shape:
    if not isinstance(given, list):
        return ()
    shapes = {shape_of(item, key) for item in given}
    if not given or len(shapes) > 1:
        lengths = ", ".join(str(len(item)) if isinstance(item, list) else "1" for item in given)
        raise UserError(f"{key} is ragged: rows of {brief(lengths)} numbers; write null for missing numbers")
    return (len(given), *shapes.pop())


def from_array(array: Array, key: str) -> Cells:
    """Convert an array to cells, as if each number were written with all the digits that its dtype needs."""
    dtype = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
    return replace(cells(to_strings(np.atleast_1d(array)), key), floor=float(np.finfo(dtype).eps ** 0.75))


def from_file(path: Path, key: str) -> Cells:
    try:
        if path.suffix == ".npy":
            array = read_npy(path)
            if array.dtype.kind not in "iuf":
                raise UserError(f"{key}={path}: expected an array of real numbers")
            return from_array(array, key)
        text = machine.decoded(machine.read(path)).removeprefix("\ufeff")
        pasted = strip_wrapper(text).strip()
        return cells(parse_lists(pasted, key), key) if PASTED.match(pasted) else table(text, key)
    except Exception as error:  # reading a person's file may raise anything
        if isinstance(error, UserError):
            raise
        raise UserError(f"{key}={path}: cannot be read ({reason(error)})") from error


def table(text: str, key: str) -> Cells:
    """Read a CSV table that may have column names in its first row and row names in its first column."""
    lines = parse_rows(re.sub(r"^[ \t]*#.*$", "", text, flags=re.MULTILINE), (COMMA, SEMICOLON, TAB, BLANK))
    rows = [row for row in lines if any(cell.strip() for cell in row)]
    if not rows:
        raise UserError(f"{key}: the file is empty")
    head = rows[0] if has_column_names(rows[0], rows[1:], key, is_number) else None
    body = rows[1:] if head else rows
    has_corner = head is not None and (not head[0].strip() or len(head) == len(body[0]) - 1)
    has_names = has_corner or all(not is_number(row[0]) and len(row) > 1 for row in body)
    numbers = cells([list(row[has_names:]) for row in body], key)
    return replace(
        numbers,
        rows=tuple(row[0].strip() for row in body) if has_names else (),
        columns=() if head is None else tuple(cell.strip() for cell in head[-numbers.values.shape[1] :]),
    )


def is_number(cell: str) -> bool:
    word = plain(cell)
    return bool(NUMBER.fullmatch(word) or INFINITE.fullmatch(word)) or word.lower() in NOT_GIVEN
