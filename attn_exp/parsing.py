"""Parse JSON and tables from untrusted files within limits; anything wrong is a one-line ValueError.

Three bytes of text, such as `[],`, can take a hundred bytes of memory. So the memory of the result is estimated before
parsing, and a text that needs more than `SWOLLEN` times its size limit is refused.
"""

from __future__ import annotations

import codecs
import csv
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from io import StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

from attn_exp import machine
from attn_exp.errors import brief, first_line

SWOLLEN = 8
LIST, OBJECT, MEMBER, ITEM, CELL, LINE = 96, 240, 150, 40, 58, 96
"""Approximate bytes of an empty list, an empty object, a name with its value, a list item, a table cell and a table
line, beyond the characters themselves."""


def read_json(path: Path, most: int = machine.MOST_BYTES, *, once: bool = False) -> Any:
    """Read a regular JSON file of at most `most` bytes; see `parse_json`.

    Raises:
        OSError: no such file, not a regular file, or a larger one.
        ValueError: not JSON.
    """
    return parse_json(machine.read(path, most), most, once=once)


def parse_json(data: bytes, most: int = machine.MOST_BYTES, *, once: bool = False) -> Any:
    """Parse JSON; `most` scales the memory limit, `once` refuses an object with a repeated name.

    Raises:
        ValueError: not UTF-8, not JSON, nested too deeply, or too large in memory.
    """
    text = decoded(data)
    counts = {"[": LIST, "{": OBJECT, ":": MEMBER, ",": ITEM}
    check_memory(text, {mark: text.count(mark) * each for mark, each in counts.items()}, most)
    try:
        return json.loads(text, object_pairs_hook=object_of if once else None)
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {first_line(error)}") from error


def object_of(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, refusing repeated names.

    Raises:
        ValueError: a name is repeated, so that its value is ambiguous.
    """
    named = dict(pairs)
    if len(named) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"it names {brief(counts.most_common(1)[0][0], 40)} twice")
    return named


def parse_csv(
    text: str, delimiter: str = ",", most: int = machine.MOST_BYTES, *, no_blanks: bool = False
) -> list[list[str]]:
    """Return the cells of each line of a table; `no_blanks` strips blanks after a delimiter.

    Raises:
        ValueError: not a table, or too large in memory.
    """
    check_memory(text, {"cells": text.count(delimiter) * CELL, "lines": text.count("\n") * (LINE + CELL)}, most)
    try:
        return list(csv.reader(StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=no_blanks))
    except csv.Error as error:
        raise ValueError(f"it is no table: {first_line(error)}") from error


def csv_lines(path: Path) -> Iterator[list[str]]:
    """Yield the cells of each line of a table file, however long it is.

    Raises:
        OSError: no such file, or not a regular file.
        ValueError: not a table.
    """
    with machine.opened(path) as file, TextIOWrapper(file, "utf-8", newline="") as text:
        try:
            yield from csv.reader(text)
        except csv.Error as error:
            raise ValueError(f"{path.name} is no table: {first_line(error)}") from error


def decoded(data: bytes) -> str:
    """Decode bytes as UTF-8, or as UTF-16 if they begin with its byte order mark.

    Raises:
        ValueError: the bytes are not valid; the message says where.
    """
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):  # as Excel writes "Unicode text"
        try:
            return data.decode("utf-16")
        except UnicodeDecodeError as error:
            raise ValueError(f"it is no UTF-16 text: {error.reason} at byte {error.start}") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no UTF-8 text: byte {data[error.start]:#x} at {error.start}") from error


def check_memory(text: str, parts: dict[str, int], most: int) -> None:
    """Refuse a text that would need far more memory than its size limit."""
    takes = sys.getsizeof(text) + sum(parts.values())
    if takes > SWOLLEN * most:
        allowed = SWOLLEN * most // 2**20
        raise ValueError(f"it would take {takes / 2**20:,.0f} MiB of memory, and {allowed:,} are allowed")
