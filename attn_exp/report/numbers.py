"""Numbers as readers see them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

NUMBER = r"-?[0-9.]+(e[+-]?[0-9]+)?"
BLOCKS = "[█▒·]+"
"""A row of the picture of a mask."""

IN_A_TABLE = rf"[+−]?{NUMBER}%?( ± [0-9.e+-]+| \([0-9.e+-]+\))?|-|-?inf|"

SIGN = re.compile(r"(?<!\w)-(?=[0-9.i])")
"""A hyphen that is the sign of a number, not of its exponent."""


def brief(value: object) -> str:
    """Write a value in few characters: yes and no, floats in four significant digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "-"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"
    return f"{value:.1e}"


def is_number(text: str) -> bool:
    """Say whether a cell of a table for papers is a number."""
    return re.fullmatch(NUMBER, text) is not None


def kinds(lines: Sequence[Sequence[str]]) -> list[str]:
    """Say of each column of a table whether it holds numbers, blocks of a mask, or words: where they stand."""
    return [kind(column) for column in zip(*lines, strict=True)]


def kind(column: Sequence[str]) -> str:
    """Say what a column holds, in the word that the style sheet knows."""
    if all(re.fullmatch(IN_A_TABLE, cell) for cell in column):
        return "number"
    return "blocks" if all(re.fullmatch(BLOCKS, cell) for cell in column) else "word"


def minus(cell: str) -> str:
    """Write a number in a page's table with a minus sign as wide as a plus; files and terminals keep the hyphen."""
    return SIGN.sub("−", cell) if re.fullmatch(IN_A_TABLE, cell) else cell


def decimal(value: float, places: int) -> str:
    """Write a number with so many decimals, and a minus sign as wide as a plus."""
    if not math.isfinite(value):
        return "−∞" if value < 0 else str(value)
    return f"{value:.{places}f}".replace("-", "−")
