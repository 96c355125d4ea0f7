"""The tables of numbers on a page: cells coloured by their size, rows and columns tied to their tokens."""

from __future__ import annotations

import math
import re
from itertools import repeat

from markupsafe import Markup, escape

from attn_exp.report import walk
from attn_exp.report.numbers import decimal

EXPONENT = re.compile(r"\d[\d.]*e[+-]\d+")


def cells(table: walk.Table, step: walk.Step) -> list[Markup]:
    """Return the cells of each row of a table, coloured by their share of the stage's largest number."""
    width = table.matrix.shape[1]
    keys = [f' data-k="{place}"' for place in range(width)] if walk.by_key(step) else [""] * width
    closed = None if step.closed is None else step.closed[table.head].tolist()
    return [
        Markup("".join(map(cell, line, repeat(step), keys, repeat(False) if closed is None else closed[row])))
        for row, line in enumerate(table.matrix.tolist())
    ]


def cell(value: float, step: walk.Step, key: str, closed: bool = False) -> str:
    """Return one cell; numbers alone go into it, and `key`, the mark of its column."""
    if closed or not math.isfinite(value):
        return f'<td class="m"{key}>{decimal(value, step.decimals if closed else 0)}</td>'
    kind = share_class(shade(value, step), "n" if value < 0 else "")
    classes = f' class="{kind}"' if kind else ""
    return f"<td{classes}{key}>{decimal(value, step.decimals)}</td>"


def shade(value: float, step: walk.Step) -> float:
    """Return how strong the colour of a number is: its share of the largest, of weights as their scale says."""
    share = abs(value) / step.largest if step.largest else 0.0
    return float(min(1.0, share) ** step.power)


def share_class(share: float, kind: str = "") -> str:
    """Return the classes of an element of a kind that shows a share, to the nearest hundredth, by its colour.

    The policy of a page allows no style in an element itself.
    """
    hundredths = round(100 * min(1.0, max(0.0, share))) if math.isfinite(share) else 0
    if not hundredths:
        return kind
    return f"{kind} w{hundredths}" if kind else f"w{hundredths}"


def share_styles() -> str:
    """Return the style of each share."""
    return "\n".join(f".w{hundredths} {{ --w: {hundredths / 100:g}; }}" for hundredths in range(1, 101))


def row_mark(step: walk.Step, place: int) -> Markup:
    """Return what ties a row to its token: a query, or a key."""
    if walk.is_projection(step):
        return Markup("")
    return Markup(f' data-{"k" if step.rows_are_keys else "q"}="{int(place)}"')


def column_mark(step: walk.Step, place: int) -> Markup:
    """Return what ties a column to its key, where columns are keys."""
    return Markup(f' data-k="{int(place)}"') if walk.by_key(step) else Markup("")


def unbroken(text: str) -> Markup:
    """Return a text for a page in which no line ends within a number such as 2e-16."""
    return Markup(EXPONENT.sub(r'<span class="whole">\g<0></span>', str(escape(text))))
