"""The prefix mask: every query sees the first keys and no other keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from attn_exp.arrays import Array
from attn_exp.config.kinds import at_least
from attn_exp.rules.example import Example
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.mask import Mask, Span


@dataclass(frozen=True)
class Prefix(Mask):
    """Every query sees key `j` iff `j < length`.

    Together with the causal mask, joined by `or`, it makes a prefix language model: attention is bidirectional within
    the prompt, and causal after it.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning", section 3.2.1.
    """

    length: Annotated[int, at_least(0)]

    def allows(self, grid: Grid) -> Array | bool:
        return grid.key < self.length

    def span(self, batch: int, first: int, last: int, keys: int) -> Span:
        seen = min(keys, self.length)
        return Span(0, seen, 0, seen)


EXAMPLE = Example(
    settings={"length": 2},
    outcome=("██··", "██··", "██··"),
    outside=Example(
        settings={"length": 2},
        outcome=("██·····", "██·····"),
        source="Flaxformer, `make_decoder_mask`: decoder_causal_attention [1, 1, 0, 1, 1, 0, 0], its first two queries",
    ),
)
