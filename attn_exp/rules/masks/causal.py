"""The causal mask: no query sees a later key."""

from __future__ import annotations

from dataclasses import dataclass

from attn_exp.arrays import Array
from attn_exp.rules.example import Example
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.mask import Mask, Span


@dataclass(frozen=True)
class Causal(Mask):
    """A query at position `i` sees key `j` iff `j <= i`.

    If the numbers of queries and keys differ, libraries disagree on the position of the first query. PyTorch, JAX and
    ONNX align the first query with the first key. FlashAttention 2.1 and later align the last query with the last key.
    The grid's offset makes that choice, so this rule has no setting.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3.
    """

    relative = True

    def allows(self, grid: Grid) -> Array | bool:
        return grid.key <= grid.query

    def span(self, batch: int, first: int, last: int, keys: int) -> Span:
        return Span(0, min(keys, max(last + 1, 0)), 0, min(keys, max(first + 1, 0)))


EXAMPLE = Example(
    settings={},
    outcome=("█···", "██··", "███·", "████"),
    outside=Example(
        settings={},
        outcome=("··", "··", "··", "█·", "██"),
        offset=-3,
        source="FlashAttention, README, 2.1: seqlen_q = 5 and seqlen_k = 2 with causal=True",
    ),
)
