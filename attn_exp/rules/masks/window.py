"""The sliding window: a query sees the keys near its position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from attn_exp.arrays import Array
from attn_exp.config.kinds import at_least
from attn_exp.rules.example import Example
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.mask import Mask, Span, make_span

Side = Annotated[int, at_least(-1, "a whole number of keys, or -1 for no limit", endless=-1)]


@dataclass(frozen=True)
class Window(Mask):
    """A query at position `i` sees key `j` iff `i - left <= j <= i + right`; a side of -1 has no limit.

    FlashAttention, ONNX and JAX count `left` and `right` as here. Mistral's window of `w` tokens, as in figure 1 of its
    paper, includes the query itself: `left = w - 1, right = 0`. Section 2 of the paper says `i - w` to `i`, which is
    one token more. Keras counts like the figure, on both sides.

    Source: Beltagy et al. 2020, "Longformer: The Long-Document Transformer", section 3.1.

    Raises:
        ValueError: `left` or `right` is below -1.
    """

    relative = True

    left: Side = -1
    right: Side = -1

    def allows(self, grid: Grid) -> Array | bool:
        distance = grid.key - grid.query
        allowed = distance >= -self.left if self.left >= 0 else True
        return allowed & (distance <= self.right) if self.right >= 0 else allowed

    def span(self, batch: int, first: int, last: int, keys: int) -> Span:
        left, right = (side if side >= 0 else keys + abs(first) + abs(last) for side in (self.left, self.right))
        some = max(first - left, 0), min(keys, last + right + 1)
        every = max(last - left, 0), min(keys, first + right + 1)
        return make_span(some, every)


EXAMPLE = Example(
    settings={"left": 1, "right": 2},
    outcome=("███··", "████·", "·████", "··███", "···██"),
    outside=Example(
        settings={"left": 2, "right": 0},
        outcome=("█····", "██···", "███··", "·███·", "··███"),
        source="Jiang et al. 2023, 'Mistral 7B', figure 1: a window of 3 over the words of 'The cat sat on the'",
    ),
)
