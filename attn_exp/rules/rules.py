"""`Rules` determine what attention computes. The functions here evaluate masks on the grid of a problem."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.mask import AllOf, Mask
from attn_exp.rules.normalizers.normalizer import Normalizer
from attn_exp.rules.normalizers.softmax import NORMALIZER as SOFTMAX
from attn_exp.rules.scores.score import Score

MOST_ENTRIES = 1 << 28
"""Maximum number of entries of a mask that is stored as an array, at one byte each."""
AT_ONCE, KEYS_AT_ONCE = 1 << 24, 256
"""Maximum number of mask entries, and of keys, that `queries_with_keys` evaluates at a time."""


@dataclass(frozen=True)
class Rules:
    """Everything that determines what attention computes, whichever form computes it.

    The stages:

    - `logits = scale * q k^T`, or `scale` times the scores of a pairing rule.
    - `capped`: the logits after the `bend` of each score rule, in order.
    - `masked`: `capped` plus every `bias`, and -inf for hidden keys.
    - `weights = normalizer.weigh(masked)`.

    Some fields:

    - `offset`: the position of the first query among the keys: an integer, or one integer per example, `[b]`.
    - `softmax_dtype`: the dtype of the normalizer in forms that round stage by stage; None keeps the input's dtype.
    - `bend_last`: whether `bend` comes after biases and masks, as in old code. A soft-cap then makes -inf finite, so
      hidden keys get weight.
    """

    scale: float = 1.0
    masks: tuple[Mask, ...] = ()
    scores: tuple[Score, ...] = ()
    normalizer: Normalizer = SOFTMAX
    offset: int | Array = field(default=0)
    softmax_dtype: Any = None
    bend_last: bool = False

    @property
    def pairing(self) -> Score | None:
        """The score rule that replaces `q k^T`, or None."""
        return next((rule for rule in self.scores if rule.pairs), None)

    @property
    def plain(self) -> bool:
        """Whether the weights are a softmax of `scale q k^T` plus biases, all in one dtype; masks are allowed."""
        are_biases = all(not rule.pairs and type(rule).bend is Score.bend for rule in self.scores)
        return are_biases and self.normalizer is SOFTMAX and self.softmax_dtype is None


def whole_grid(rules: Rules, heads: int, rows: int, keys: int, batches: int | None = None) -> Grid:
    """Return the grid of all logits `[h t s]`, or `[b h t s]` with `batches`."""
    batch = 0 if batches is None else np.arange(batches)[:, None, None, None]
    return part_grid(
        rules, batch, np.arange(heads)[:, None, None], np.arange(rows)[:, None], np.arange(keys), (heads, rows, keys)
    )


def part_grid(rules: Rules, batch: Any, head: Any, row: Any, key: Any, sizes: tuple[int, int, int]) -> Grid:
    """Return the grid of part of the logits, given by indices or index arrays.

    `sizes` are the numbers of heads, rows and keys of the whole problem.
    """
    offset = np.asarray(rules.offset)
    return Grid(batch, head, row, row + (offset[batch] if offset.ndim else offset), key, *sizes)


def allowed_entries(masks: Sequence[Mask], rows: int, keys: int, offset: int = 0, heads: int = 1) -> Array:
    """Return which keys each query sees under all of the masks, as booleans `[h t s]`.

    Raises:
        UserError: the mask is too large to draw.
    """
    if heads * rows * keys > MOST_ENTRIES:
        raise UserError(f"a mask of {heads} x {rows} x {keys} entries is too large to draw; use fewer tokens")
    allowed = AllOf(tuple(masks)).allows(whole_grid(Rules(offset=offset), heads, rows, keys))
    return np.broadcast_to(np.asarray(allowed, dtype=bool), (heads, rows, keys))


def queries_with_keys(rules: Rules, heads: int, rows: int, keys: int) -> Array:
    """Return which queries see at least one key, as booleans `[h t]`.

    The masks are evaluated for one block of keys after another, and only for queries that see no key of earlier blocks.
    """
    grid = whole_grid(rules, heads, rows, keys)
    sees_key = np.full((heads, rows), not rules.masks)
    block = max(1, min(KEYS_AT_ONCE, AT_ONCE // max(1, heads * rows)))
    for start in itertools.takewhile(lambda _: not sees_key.all(), range(0, keys, block)):
        undecided = np.flatnonzero(~sees_key.all(axis=0))
        row, key = undecided[:, None], np.arange(start, min(start + block, keys))
        allowed = AllOf(rules.masks).allows(replace(grid, row=row, query=row + int(rules.offset), key=key))
        sees_key[:, undecided] |= np.broadcast_to(allowed, (heads, len(row), len(key))).any(axis=-1)
    return sees_key
