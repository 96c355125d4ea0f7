"""Write CSV tables, and read them back.

`format_...` functions turn values into cells and put an apostrophe before text that a spreadsheet could run as a
formula: `=1+1` becomes `'=1+1`. `parse_...` functions turn cells into values and remove this apostrophe. The columns of
a table of records are the fields of a frozen dataclass.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from io import StringIO
from types import NoneType
from typing import Any, get_args, get_type_hints

from attn_exp import machine

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A string that begins with one of these could run as a formula in a spreadsheet."""


NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|[-+]?inf|nan", re.IGNORECASE)


def format_records(schema: type, records: Iterable[Any]) -> str:
    """Format records as CSV: one line each, numbers with all significant digits, None as an empty cell."""
    names = [field.name for field in fields(schema)]
    return as_csv([names, *([format_cell(getattr(record, name)) for name in names] for record in records)])


def as_csv(lines: Sequence[Sequence[str]]) -> str:
    """Format lines of cells as CSV; each cell is a constant, or comes from `format_cell` or `format_label`.

    If a cell contains a carriage return, all cells are quoted; otherwise it would break its line in two.
    """
    text = StringIO()
    has_returns = any("\r" in cell for line in lines for cell in line)
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if has_returns else csv.QUOTE_MINIMAL)
    writer.writerows(lines)
    return text.getvalue()


def format_cell(value: Any) -> str:
    """Format a value as a cell: booleans in lower case, floats so that they read back unchanged, None as empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("'", *FORMULA)) else value
    return repr(float(value)) if isinstance(value, float) else str(value)


def format_label(text: str) -> str:
    """Format a string as a cell; a number such as `-1` stays unchanged, since a spreadsheet does not run it."""
    return text if NUMBER.fullmatch(text) else format_cell(text)


def parse_text(cell: str) -> str:
    """Return the text of a cell, without the apostrophe that `format_cell` put before it."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(("'", *FORMULA)) else cell


def parse_texts(line: list[str]) -> list[str]:
    """Return the texts of a line's cells; for speed, lines without an apostrophe are returned unchanged."""
    return [parse_text(cell) for cell in line] if "'" in "".join(line) else line


def parse_records(schema: type, text: str) -> tuple[Any, ...]:
    """Parse the records that `format_records` wrote.

    A missing column gets the default of its field: a plugin may have added it after the file was written.

    Raises:
        ValueError: a column is unknown, repeated or missing, a line is too short or too long, or a cell has none of the
            types of its field.
    """
    head, *lines = [*machine.parse_csv(text)] or [[]]
    types = get_type_hints(schema)
    required = {field.name for field in fields(schema) if field.default is MISSING}
    if len(set(head)) < len(head) or not required <= set(head) <= set(types):
        raise ValueError(f"expected the columns {', '.join(types)}; found {', '.join(head) or 'none'}")
    return tuple(
        schema(**{name: parse_cell(cell, types[name]) for name, cell in zip(head, line, strict=True)}) for line in lines
    )


def parse_cell(text: str, kind: Any) -> Any:
    kinds = get_args(kind) or (kind,)
    if text == "" and NoneType in kinds:
        return None
    if bool in kinds and text in ("true", "false"):
        return text == "true"
    if str in kinds:
        return parse_text(text)
    return int(text) if int in kinds else float(text)
