"""JSON and tables that somebody else wrote, parsed within limits: whatever is wrong with one is a ValueError in a line.

Three bytes of a text, such as `[],`, can take a hundred of memory. So what a text would become is counted before it is
parsed, and a text that would take more than `SWOLLEN` times the bytes that are allowed of it is refused.
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
"""About how many bytes of memory an empty list, an empty object, a name with its value, a number of a list, a cell and
a line of a table take, beyond the characters themselves."""


def read_json(path: Path, most: int = machine.MOST_BYTES, *, once: bool = False) -> Any:
    """Return what a regular file of JSON of at most so many bytes holds; as `parse_json`.

    Raises:
        OSError: no such file, something else than a regular file, or one that is larger.
        ValueError: no JSON.
    """
    return parse_json(machine.read(path, most), most, once=once)


def parse_json(data: bytes, most: int = machine.MOST_BYTES, *, once: bool = False) -> Any:
    """Return what a text of JSON holds; `most` is how many bytes may come, `once` refuses a name that stands twice.

    Raises:
        ValueError: no UTF-8, no JSON, lists in lists without end, or a text that takes too much memory.
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
    """Return an object of JSON.

    Raises:
        ValueError: it names something twice; who reads it cannot know which is meant.
    """
    named = dict(pairs)
    if len(named) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"it names {brief(counts.most_common(1)[0][0], 40)} twice")
    return named


def parse_csv(
    text: str, delimiter: str = ",", most: int = machine.MOST_BYTES, *, no_blanks: bool = False
) -> list[list[str]]:
    """Return the cells of each line of a table; `no_blanks` leaves out those after a delimiter.

    Raises:
        ValueError: no table, or one that takes too much memory.
    """
    check_memory(text, {"cells": text.count(delimiter) * CELL, "lines": text.count("\n") * (LINE + CELL)}, most)
    try:
        return list(csv.reader(StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=no_blanks))
    except csv.Error as error:
        raise ValueError(f"it is no table: {first_line(error)}") from error


def csv_lines(path: Path) -> Iterator[list[str]]:
    """Yield the cells of each line of a regular file that is a table, however long it is.

    Raises:
        OSError: no such file, or something else than a regular file.
        ValueError: no table.
    """
    with machine.opened(path) as file, TextIOWrapper(file, "utf-8", newline="") as text:
        try:
            yield from csv.reader(text)
        except csv.Error as error:
            raise ValueError(f"{path.name} is no table: {first_line(error)}") from error


def decoded(data: bytes) -> str:
    """Return bytes as the text that they are in UTF-8; or in UTF-16, where they begin with its mark.

    Raises:
        ValueError: they are none; it says which.
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
    """Refuse a text that would become far more in memory than its bytes may be."""
    takes = sys.getsizeof(text) + sum(parts.values())
    if takes > SWOLLEN * most:
        allowed = SWOLLEN * most // 2**20
        raise ValueError(f"it would take {takes / 2**20:,.0f} MiB of memory, and {allowed:,} are allowed")
