"""Numbers given by a user, as float64 matrices."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError, brief, shown

MATRICES = ("W_q", "W_k", "W_v", "W_o")
BIASES = ("b_q", "b_k", "b_v", "b_o")


class Inputs(NamedTuple):
    """The inputs of the projections: x `[t m]` for queries, `source` `[s n]`, x or the memory, for keys and values."""

    x: Array
    source: Array

    def of(self, name: str) -> Array:
        """Return the input of a matrix, or of the matrix that a bias belongs to."""
        return self.source if name[-1] in "kv" else self.x

    def width(self, name: str = "x") -> int:
        return int(self.of(name).shape[1])


def array(given: Any, key: str) -> Array:
    if isinstance(given, np.ndarray) and given.ndim == 2 and given.size and given.dtype.kind in "iuf":
        return finite(given.astype(np.float64), key)
    if not isinstance(given, (list, tuple)) or not given or not all(isinstance(row, (list, tuple)) for row in given):
        raise UserError(f"{key}={brief(shown(given))}: expected a list of rows, such as [[1,0],[0,1]]")
    widths = [len(row) for row in given]
    if len(set(widths)) > 1:
        raise UserError(f"{key} is ragged: rows of {brief(', '.join(map(str, widths)))} numbers")
    if widths[0] == 0:
        raise UserError(f"{key} is empty: expected at least one number in each row")
    for place, row in enumerate(given):
        for entry in row:
            if isinstance(entry, bool) or not isinstance(entry, (int, float)):
                batch = "; a run is one sequence of a batch, and -m runs several"
                hint = f", a list of its own, which is not a number{batch}" if isinstance(entry, (list, tuple)) else ""
                said = brief(repr(entry) if isinstance(entry, str) else shown(entry), 40)
                raise UserError(f"{key}: row {place} holds {said}{hint or ', which is not a number'}")
    try:
        return finite(np.array(given, dtype=np.float64), key)
    except OverflowError:
        raise UserError(f"{key} holds a number beyond 1.8e308, the largest of a 64-bit float") from None


PRINTED = re.compile(r"\s*(?:\w+\()?\[")
"""The beginning of a matrix printed by NumPy or PyTorch, perhaps as array([[...]]) or tensor([[...]])."""


def as_printed(text: str, key: str) -> Array:
    """Parse a matrix as NumPy or PyTorch prints it: a pair of brackets for each row, with or without commas.

    Raises:
        UserError: it is no matrix of numbers; the message says where.
    """
    rows = [row.replace(",", " ").split() for row in re.findall(r"\[([^\[\]]*)\]", text)]
    return array([[float(cell) if NUMBER.fullmatch(cell) else cell for cell in row] for row in rows], key)


NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?(inf|nan)", re.IGNORECASE)


def is_plain(given: Any) -> bool:
    """Say whether an array is a description or a list of rows, neither a file nor one list per head."""
    inner = given
    for _ in range(2):
        inner = inner[0] if isinstance(inner, (list, tuple)) and inner else None
    return not isinstance(given, str) and not isinstance(inner, (list, tuple))


def finite(matrix: Array, key: str) -> Array:
    bad = np.argwhere(~np.isfinite(matrix))
    if len(bad):
        row, column = bad[0]
        raise UserError(f"{key}: row {row}, column {column} holds {matrix[row, column]}; expected finite numbers")
    return matrix


def check_divides(head: int, size: int, meaning: str) -> None:
    if size % head:
        raise UserError(f"head={head} does not divide {meaning}={size}; choose one of {divisors(size)}")


def divisors(size: int) -> str:
    return ", ".join(str(divisor) for divisor in range(1, size + 1) if size % divisor == 0)


def grouped(queries: int, keys: int, head: int) -> int:
    """Return how many query heads share a key/value head, from the widths of queries and keys.

    Raises:
        UserError: the widths do not allow heads of one size.
    """
    sharing = queries // keys
    if queries % keys or (sharing > 1 and head % sharing):
        raise UserError(f"projections.W_q makes {queries} numbers per query, W_k makes {keys} per key")
    return sharing
