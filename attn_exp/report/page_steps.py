"""The tables of a walk as a page carries them: the digits of all heads in few bytes, from which its script writes them.

A page shows the tables of one head of one variant. Those are written here where the page begins with them; the others
travel as whole numbers, the digits that their tables show, and are written when somebody asks for them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.report import walk, words
from attn_exp.report.numbers import decimal
from attn_exp.report.walk import SIDE, Step, Table

FEW, MANY_TOKENS = 4, 8
"""Of more than 16 numbers of a vector a page shows four, and of each vector where there are more than eight tokens.
Rows of tokens and columns of keys it shows up to 16."""

MOST_CELLS = 50_000
"""So many numbers of a stage travel with a page: of more heads than that the first."""

MARKS = {"closed": -32768, "−∞": -32767, "nan": -32766, "inf": 32767}
"""What stands for a cell that is no number, or that a mask closes."""

LARGEST = 32_765
"""The largest whole number of two bytes that is no mark."""


def most_numbers(tokens: int) -> int:
    """Return how many numbers of a vector a page shows whole, of a run of so many tokens."""
    return FEW if tokens > MANY_TOKENS else SIDE


def on_page(step: Step, most: int) -> Step:
    """Return a step with what a page shows of it: the first head that it begins with, and four numbers of vectors that
    have more than `most`."""
    heads, rows, columns = step.corners.shape
    tall = (1, 1, *step.shape)[-2] if step.stage != "lse" else step.shape[-1]
    wide = step.shape[-1] if step.stage != "lse" else step.shape[0]
    rows = min(rows, FEW) if walk.is_projection(step) and tall > most else rows
    columns = min(columns, FEW) if not walk.by_key(step) and wide > most else columns
    first = step.tables[0]
    table = Table(
        first.title,
        first.head,
        first.rows[:rows],
        first.columns[:columns],
        first.matrix[:rows, :columns],
        cut(first.parts, columns),
    )
    kept = max(1, min(heads, MOST_CELLS // max(1, rows * columns)))
    said = [words.OF_HEADS.format(shown=kept, all=heads)] if kept < heads else []
    said += [words.OF_LINES.format(shown=rows, all=tall, lines=words.ROWS)] if rows < tall else []
    said += [words.OF_LINES.format(shown=columns, all=wide, lines=words.COLUMNS)] if columns < wide else []
    corners = step.corners[:kept, :rows, :columns]
    return step._replace(tables=(table,), corners=corners, left_out=words.listed(said) if said else "")


def cut(parts: tuple[tuple[str, int], ...], columns: int) -> tuple[tuple[str, int], ...]:
    """Return which heads the first columns are for."""
    kept, left = list[tuple[str, int]](), columns
    for whom, count in parts:
        if left > 0:
            kept.append((whom, min(count, left)))
        left -= count
    return tuple(kept)


def carried(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return whose walk it is and its tables, ready for JSON, by the names of their stages."""
    steps = {step.stage: carried_step(step) for group in shown["groups"] for step in group}
    return {"variant": shown["variant"], "title": shown["title"], "panel": shown["panel"], "steps": steps}


def carried_step(step: Step) -> dict[str, Any]:
    """Return the digits of all heads of a step, and what its tables are written with."""
    table, heads = step.tables[0], len(step.corners)
    tokens = not walk.is_projection(step)
    digits, wide = whole_numbers(step)
    return {
        "rows": ("k" if step.rows_are_keys else "q") if tokens else list(table.rows),
        "columns": "k" if walk.by_key(step) else list(table.columns),
        "owners": step.owners,
        "shape": step.corners.shape,
        "titled": (heads > 1 or bool(table.title)) and not step.owners,
        "decimals": step.decimals,
        "largest": step.largest,
        "power": step.power,
        "parts": table.parts,
        "wide": wide,
        "digits": digits,
    }


def whole_numbers(step: Step) -> tuple[str, bool]:
    """Return the digits of all cells as base64 of whole numbers, little end first, and whether they need float64."""
    flat = step.corners.ravel()
    if (np.abs(flat[np.isfinite(flat)]) * 10.0**step.decimals > LARGEST).any():
        return packed(np.rint(flat * 10.0**step.decimals)), True
    array = np.array([digits_of(value, step.decimals) for value in flat.tolist()], dtype="<i2")
    if step.closed is not None:
        heads, rows, columns = step.corners.shape
        array[step.closed[:heads, :rows, :columns].ravel()] = MARKS["closed"]
    return base64.b64encode(array.tobytes()).decode(), False


def digits_of(value: float, places: int) -> int:
    """Return the number that a cell shows, without its point; a mark where it shows none."""
    text = decimal(value, places)
    return MARKS[text] if text in MARKS else int(text.replace(".", "").replace("−", "-"))


def packed(array: Array) -> str:
    """Return an array as base64 of float64 in little-endian order."""
    return base64.b64encode(np.ascontiguousarray(array, "<f8").tobytes()).decode()
