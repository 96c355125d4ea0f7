"""A mask to look at: its blocks, how much of it is open, and what each query sees, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.rules import Rules, whole_grid

FULL, PARTIAL, EMPTY = "█", "▒", "·"
WIDEST = 48
"""The most blocks that stand side by side."""

MOST_PLACES = 1 << 28
"""The most places of a mask that are looked at one by one, a byte each."""


def places(masks: Sequence[Mask], rows: int, keys: int, offset: int = 0, heads: int = 1) -> Array:
    """Return which places masks allow together, `[h t s]`.

    Raises:
        UserError: more places than a picture is worth.
    """
    if heads * rows * keys > MOST_PLACES:
        raise UserError(f"a mask of {heads} x {rows} x {keys} places is too large to draw; use fewer tokens")
    allowed = np.ones((heads, rows, keys), dtype=bool)
    for mask in masks:
        allowed = allowed & mask.allows(whole_grid(Rules(offset=offset), heads, rows, keys))
    return allowed


def picture(allowed: Array, size: int | None = None) -> list[str]:
    """Draw a mask `[t s]`, a line per row of blocks: full (█), partial (▒) and empty (·) ones.

    Blocks are `size` queries by `size` keys; without a size, the smallest that fit side by side.
    """
    step = block_size(allowed) if size is None else size
    return [
        "".join(block(allowed[row : row + step, key : key + step]) for key in range(0, allowed.shape[1], step))
        for row in range(0, allowed.shape[0], step)
    ]


def block_size(allowed: Array) -> int:
    """Return the smallest power of two whose blocks fit side by side and one above the other."""
    size = 1
    while max(allowed.shape) > WIDEST * size:
        size *= 2
    return size


def block(allowed: Array) -> str:
    if allowed.all():
        return FULL
    return PARTIAL if allowed.any() else EMPTY


def density(allowed: Array) -> float:
    """Return the share of places that may attend: 1 - PyTorch FlexAttention's `BlockMask.sparsity` of single places."""
    return float(allowed.mean()) if allowed.size else 0.0


def sight(seen: Array, names: Sequence[str]) -> str:
    """Say which keys `[s]` are seen: `she, likes`, `k0..k4 and k7`, `every key` or `no key`."""
    if seen.all():
        return "every key"
    runs = np.flatnonzero(np.diff(np.concatenate([[False], seen, [False]]).astype(int))).reshape(-1, 2)
    if not len(runs):
        return "no key"
    words = [
        ", ".join(names[start:stop]) if stop - start < 3 else f"{names[start]}..{names[stop - 1]}"
        for start, stop in runs
    ]
    shown = words if len(words) <= 5 else [*words[:4], f"{len(words) - 4} more runs"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def seen_by(query: str, seen: Array, names: Sequence[str], verb: str = "sees") -> str:
    """Say what one query sees, such as `likes sees she, likes`."""
    return f"{query} {verb} {sight(seen, names)}"
