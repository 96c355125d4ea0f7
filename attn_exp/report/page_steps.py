"""The tables of a walk as a page carries them: compact digits of all heads, which its script turns into tables.

A page shows the tables of one head of one variant. Those that it starts with are written out; the others travel as
integers, the digits of their tables, and are written on demand. Scores, what is derived from them, and weights do not
travel twice: the page has them for its maps and lines.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.report import walk
from attn_exp.report.escapes import decimal
from attn_exp.report.views import Panel
from attn_exp.report.walk import SIDE, Step

FEW, MANY_TOKENS = 4, 8
"""A page shows four numbers of a vector that has more than 16, and of every vector if there are more than eight tokens.
Rows of tokens and columns of keys are shown 16 at a time."""

MOST_CELLS = 50_000
"""Maximum number of values of a stage on a page; of larger ones, the first 16 keys, tokens and heads."""

MARKS = {"closed": -32768, "−∞": -32767, "nan": -32766, "inf": 32767}
"""Codes of cells that are masked or not finite."""

LARGEST = 32_765
"""The largest two-byte integer that is no code."""


def most_numbers(tokens: int) -> int:
    """Return how long a vector may be to be shown whole, in a run of so many tokens."""
    return FEW if tokens > MANY_TOKENS else SIDE


def on_page(step: Step, most: int) -> Step:
    """Cut a step to what a page shows: its first head, and four numbers of vectors that have more than `most`."""
    heads, rows, columns = step.corners.shape
    tall, wide = step.shape[::-1] if step.stage == "lse" else (1, 1, *step.shape)[-2:]
    if walk.is_projection(step):
        rows = min(rows, FEW if tall > most else SIDE)
    if not walk.by_key(step):
        columns = min(columns, FEW if wide > most else SIDE)
        rows = rows if heads * rows * columns <= MOST_CELLS else min(rows, SIDE)
    first = step.tables[0]
    table = first._replace(
        title="head 1" if step.head_rows else first.title,
        rows=first.rows[:rows],
        columns=first.columns[:columns],
        matrix=first.matrix[:rows, :columns],
        parts=cut_parts(first.parts, columns),
    )
    kept = heads if walk.by_key(step) else max(1, min(heads, MOST_CELLS // max(1, rows * columns)))
    counts = ((kept, heads, "heads"), (len(table.rows), tall, "rows"), (len(table.columns), wide, "columns"))
    left_out = ", ".join(f"{shown} of {whole} {what}" for shown, whole, what in counts if shown < whole)
    return step._replace(tables=(table,), corners=step.corners[:kept, :rows, :columns], left_out=left_out)


def cut_parts(parts: tuple[tuple[str, int], ...], columns: int) -> tuple[tuple[str, int], ...]:
    starts = np.cumsum([0, *(count for _, count in parts)]).tolist()
    inside = [(whom, min(count, columns - start)) for (whom, count), start in zip(parts, starts, strict=False)]
    return tuple((whom, count) for whom, count in inside if count > 0)


def carried(shown: Mapping[str, Any], panels: Sequence[tuple[Panel, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return a walk's variant and its tables by stage, ready for JSON.

    `panels` are those of the page, each with its data there.
    """
    known = {} if shown["panel"] == "" else known_arrays(*panels[shown["panel"]])
    steps = {step.stage: carried_step(step, known.get(step.stage)) for group in shown["groups"] for step in group}
    return {"variant": shown["variant"], "title": shown["title"], "panel": shown["panel"], "steps": steps}


def known_arrays(panel: Panel, told: Mapping[str, Any]) -> dict[str, tuple[Array, str]]:
    """Return the stages that a page derives from a panel's numbers, with the places that it shows as masked."""
    split, shut = panel.split, told.get("shut", "")
    if "pictures" in told:
        return {}
    known = {"weights": panel.weights}
    if split is not None and "scores" in told:
        logits = split.own * split.scores
        known |= {"scores": split.scores, "logits": logits, "masked": logits + split.rest}
    return {stage: (array, shut) for stage, array in known.items()}


def is_known(step: Step, known: tuple[Array, str] | None) -> bool:
    """Return whether a step equals, up to rounding, what the page derives from a panel."""
    if known is None or known[0].shape != step.corners.shape:
        return False
    if step.closed is not None and step.closed.any() and as_text(one_head(step.closed)) != known[1]:
        return False
    least = 1e-12 * float(np.abs(step.corners[np.isfinite(step.corners)]).max(initial=0))
    return np.allclose(known[0], step.corners, rtol=1e-12, atol=least, equal_nan=True)


def limit_cells(step: Step) -> Step:
    """Cut a step over keys to at most `MOST_CELLS` numbers: to the first keys, then to the first queries and heads."""
    heads, rows, columns = step.corners.shape
    if heads * rows * columns <= MOST_CELLS:
        return step
    columns = min(columns, SIDE, MOST_CELLS // (heads * rows))
    if columns < FEW:
        rows, columns = min(rows, SIDE), min(step.corners.shape[2], SIDE)
    return step._replace(corners=step.corners[: max(1, MOST_CELLS // (rows * columns)), :rows, :columns])


def carried_step(step: Step, known: tuple[Array, str] | None) -> dict[str, Any]:
    is_made, tokens = is_known(step, known), not walk.is_projection(step)
    step = limit_cells(step) if walk.by_key(step) and not is_made else step
    table, heads = step.tables[0], len(step.corners)
    digits, wide = ("", False) if is_made else whole_numbers(step)
    return {
        "rows": ("k" if step.rows_are_keys else "q") if tokens else list(table.rows),
        "columns": "k" if walk.by_key(step) else list(table.columns),
        "owners": step.owners,
        "headRows": step.head_rows,
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
    """Return the digits of all cells as base64 of little-endian integers, and whether these need float64."""
    flat = step.corners.ravel()
    if (np.abs(flat[np.isfinite(flat)]) * 10.0**step.decimals > LARGEST).any():
        return packed(np.rint(flat * 10.0**step.decimals)), True
    array = np.array([digits_of(value, step.decimals) for value in flat.tolist()], dtype="<i2")
    if step.closed is not None:
        heads, rows, columns = step.corners.shape
        array[step.closed[:heads, :rows, :columns].ravel()] = MARKS["closed"]
    return base64.b64encode(array.tobytes()).decode(), False


def digits_of(value: float, places: int) -> int:
    """Return the number that a cell shows, without its decimal point, or a code of `MARKS`."""
    text = decimal(value, places)
    return MARKS[text] if text in MARKS else int(text.replace(".", "").replace("−", "-"))


def packed(array: Array) -> str:
    """Encode an array as base64 of little-endian float64."""
    return in_base64(array, "<f8")


def narrow(array: Array) -> dict[str, str]:
    """Encode an array as base64 of float32, in half the bytes."""
    return {"narrow": in_base64(array, "<f4")}


def in_base64(array: Array, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(array, kind).tobytes()).decode()


def as_text(places: Array) -> str:
    """Write booleans as 1 and 0."""
    return "".join("01"[int(each)] for each in places.ravel())


def one_head(array: Array) -> Array:
    """Return an array `[h t s]`, cut to its first head if all are equal."""
    return array[:1] if (array == array[:1]).all() else array
